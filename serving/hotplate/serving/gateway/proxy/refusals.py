"""The errors of requests that the queue refused or gave up, and their log line. Pure."""

from __future__ import annotations

from collections import Counter

from hotplate.serving.gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    NoCapacity,
    NotReady,
    ShareFull,
)
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.queue.changes import End
from hotplate.serving.gateway.queue.discipline import SlotQueue
from hotplate.serving.gateway.queue.ticket import Ticket, WaiterT

LOG_EVERY_S = 10.0
"""The log says at most once in this time that a route refuses requests."""


class RefusalLog:
    """Log lines about refusals of one route: the first at once, then sums."""

    def __init__(self) -> None:
        self._logged_at = -LOG_EVERY_S
        self._counts: Counter[str] = Counter()
        """By error code, since the last line."""

    def sentence(self, error: GatewayError, now: float) -> str:
        """Counts the error, and returns a sentence for the log; empty = it is too early for one."""
        self._counts[error.code] += 1
        if now - self._logged_at < LOG_EVERY_S:
            return ""
        counts = ", ".join(f"{count} {code}" for code, count in self._counts.items())
        self._logged_at = now
        self._counts.clear()
        return (
            f"{error.message} Refused since the last such line: {counts}. "
            "More replicas (scaling.max_replicas) or slots (traffic.concurrency) serve more."
        )


def refusal(
    route: Route, queue: SlotQueue[WaiterT], ticket: Ticket[WaiterT], end: End, now: float
) -> GatewayError:
    """The error for a ticket of the route that has ended for this reason."""
    name = route.name
    unready = "" if queue.ready else no_replica(route)
    retry_after_s = queue.estimates.retry_after_s(now)
    if end is End.RUNNING:
        return DeadlineExceeded(f"{name}: no answer in {ticket.timeout_s:.4g} s (timeout_s).")
    if end is End.WAITING:
        return DeadlineExceeded(f"{name}: no slot became free in {ticket.timeout_s:.4g} s.")
    if end is End.NO_REPLICA:
        waited = f" ({route.waits_for})" if route.waits_for else ""
        sentence = f"{name}: no replica became ready in {ticket.hold_s:g} s{waited}; try again."
        return NotReady(sentence, retry_after_s=retry_after_s)
    if end is End.NO_CAPACITY:
        sentence = (
            f"{name}: {queue.fair_queue.count} requests wait for {queue.slots} slots, and one "
            f"takes {queue.service.mean_s:.3g} s; it could not be answered in "
            f"{ticket.timeout_s:g} s{unready}."
        )
        return NoCapacity(sentence, retry_after_s=retry_after_s)
    sentence = f"{_slow_readers(name, queue, ticket, end)}{unready}; come back later."
    return ShareFull(sentence, retry_after_s=retry_after_s)


def no_replica(route: Route) -> str:
    """The end of a sentence about a route without a ready replica."""
    return "; no replica is ready" + (f" ({route.waits_for})" if route.waits_for else "")


def _slow_readers(name: str, queue: SlotQueue[WaiterT], ticket: Ticket[WaiterT], end: End) -> str:
    overflow = queue.overflow
    if queue.fair_queue.count >= overflow.limit or end is End.PUSHED_OUT:
        what = f"{queue.queued} requests wait (queue_limit={overflow.limit})"
    else:
        what = f"{queue.queued_bytes} bytes wait (queue_limit_bytes={overflow.limit_bytes})"
    if end is End.PUSHED_OUT:
        return f"{name}: {what}, and its place went to an organization with fewer"
    if ticket.organization:
        what += f", and organization '{ticket.organization}' has its share of them"
    return f"{name}: {what}"
