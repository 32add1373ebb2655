"""Whether a request can still be answered in time, as far as is known. Pure."""

from __future__ import annotations

from typing import Final

from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Ticket, WaiterT

TRANSIT: Final = 0.01
"""The part of a request's time limit that the request's way here and the response's way back may
take, because the caller's clock started before ours. It counts where others wait for the slot."""
TRANSIT_MOST_S: Final = 0.05


def is_hopeless(
    ticket: Ticket[WaiterT], service: ServiceTime, now: float, *, contended: bool = False
) -> bool:
    """Whether a response needs more than the ticket's remaining time. `contended`: others wait for
    the slot, so the ticket must have a fair chance, not only some chance."""
    remaining_s = ticket.ends_at - now
    needs_s = service.fair_s + transit_s(ticket) if contended else service.least_s
    return remaining_s < needs_s and service.is_fresh(now)


def comes_too_late(
    ticket: Ticket[WaiterT],
    fair_queue: FairQueue[WaiterT],
    service: ServiceTime,
    slots: int,
    now: float,
) -> bool:
    """Whether so many requests go before the ticket that it cannot be answered in time."""
    remaining_s = ticket.ends_at - now
    needs_s = service.fair_s + TRANSIT_MOST_S
    # Most requests have time enough for all that wait; only the others need a closer look.
    if fair_queue.count * service.mean_s <= (remaining_s - needs_s) * slots:
        return False
    if service.is_fresh(now):
        remaining_s -= service.fair_s + transit_s(ticket)
    return service.least_work_s(fair_queue.ahead(ticket)) > remaining_s * slots


def transit_s(ticket: Ticket[WaiterT]) -> float:
    """What the request's and the response's way may take, in seconds."""
    return min(TRANSIT_MOST_S, TRANSIT * ticket.timeout_s)
