"""What a caller is told whose request the queue refused or gave up. Pure."""

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
from hotplate.serving.gateway.queue.ticket import Holder, Ticket

SAID_S = 10.0
"""How often at most the log says that a route refuses requests."""


class RefusalLog:
    """What an operator is told of a route that refuses: the first case at once, then sums."""

    def __init__(self) -> None:
        self._said_at = -SAID_S
        self._counts: Counter[str] = Counter()
        """By error code, since the last sentence."""

    def line(self, error: GatewayError, now: float) -> str:
        """The sentence for the log; empty = not yet again."""
        self._counts[error.code] += 1
        if now - self._said_at < SAID_S:
            return ""
        counts = ", ".join(f"{count} {code}" for code, count in self._counts.items())
        self._said_at = now
        self._counts.clear()
        return (
            f"{error.message} Refused since the last such line: {counts}. "
            "More replicas (scaling.max_replicas) or slots (traffic.concurrency) serve more."
        )


def refusal(
    route: Route, queue: SlotQueue[Holder], ticket: Ticket[Holder], end: End, now: float
) -> GatewayError:
    """The error for a ticket of the route that has ended so, in one sentence."""
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
            f"{name}: {queue.line.count} requests wait for {queue.slots} slots, and one takes "
            f"{queue.service.mean_s:.3g} s; it could not be answered in {ticket.timeout_s:g} s"
            f"{unready}."
        )
        return NoCapacity(sentence, retry_after_s=retry_after_s)
    sentence = f"{_full(name, queue, ticket, end)}{unready}; come back later."
    return ShareFull(sentence, retry_after_s=retry_after_s)


def no_replica(route: Route) -> str:
    """The part of a sentence about a route none of whose replicas is ready."""
    return "; no replica is ready" + (f" ({route.waits_for})" if route.waits_for else "")


def _full(name: str, queue: SlotQueue[Holder], ticket: Ticket[Holder], end: End) -> str:
    room = queue.room
    if queue.line.count >= room.limit or end is End.PUSHED_OUT:
        what = f"{queue.queued} requests wait (queue_limit={room.limit})"
    else:
        what = f"{queue.queued_bytes} bytes wait (queue_limit_bytes={room.limit_bytes})"
    if end is End.PUSHED_OUT:
        return f"{name}: {what}, and its place went to an organization with fewer"
    if ticket.organization:
        what += f", and organization '{ticket.organization}' has its share of them"
    return f"{name}: {what}"
