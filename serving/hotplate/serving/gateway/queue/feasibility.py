"""Whether a request can still be answered in time, as far as is known. Pure."""

from __future__ import annotations

from typing import Final

from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Holder, Ticket

WAY: Final = 0.01
"""Of a request's time limit, what its way here and its answer's way back may take: the caller's
own clock began before ours. It counts where others wait for the slot."""
WAY_MOST_S: Final = 0.05


def is_hopeless(
    ticket: Ticket[Holder], service: ServiceTime, now: float, *, contended: bool = False
) -> bool:
    """Whether it has less time left than an answer needs; more is needed where others wait."""
    left_s = ticket.ends_at - now
    needs_s = service.fair_s + way_s(ticket) if contended else service.least_s
    return left_s < needs_s and service.is_fresh(now)


def comes_too_late(
    ticket: Ticket[Holder], line: FairLine[Holder], service: ServiceTime, slots: int, now: float
) -> bool:
    """Whether so much goes before it on its route's slots that it cannot be answered in time."""
    left_s = ticket.ends_at - now
    needs_s = service.fair_s + WAY_MOST_S
    # Most requests have time for everybody who waits; only others are worth a closer look.
    if line.count * service.mean_s <= (left_s - needs_s) * slots:
        return False
    if service.is_fresh(now):
        left_s -= service.fair_s + way_s(ticket)
    return service.least_work_s(line.ahead(ticket)) > left_s * slots


def way_s(ticket: Ticket[Holder]) -> float:
    return min(WAY_MOST_S, WAY * ticket.timeout_s)
