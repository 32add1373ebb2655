"""A route's queue and its replicas' slots: who waits, who is served, by which replica.

Pure: no I/O, time is an argument. A caller submits tickets, and every call answers with the
tickets that have just got a replica; the caller then sends those. The rules:

* A ticket is bound to a replica only when it has that replica's slot, and one free slot releases
  one ticket (*metered release*), to the open replica with most free slots.
* A slot comes back by `release` only. Whoever calls it must know that the replica's handler has
  ended; that a caller left or a time ran out is no reason (*slot truth*).
* No ticket waits while a slot that it could have is free.

The order of waiting is a `Line`; `Fifo` is the one there is.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from hotplate.serving.gateway.routes import ReplicaRoute
from hotplate.serving.gateway.waiting import Fifo, Holder, Ledger, Line, Replica, Ticket

SERVICE_TIME_WEIGHT = 0.1
"""Weight of the newest request in the mean service time."""
RETRY_AFTER_S = (1.0, 60.0)
"""Least and most that a refused caller is told to wait."""
OUT_S = 1.0
"""How long a replica that refused a connection gets nothing."""


class Verdict(enum.Enum):
    """What became of a submitted ticket."""

    GRANTED = "granted"
    QUEUED = "queued"
    QUEUE_FULL = "queue_full"
    QUEUE_BYTES_FULL = "queue_bytes_full"


class Expiry(enum.Enum):
    """Where a ticket was when its time ran out."""

    NO_REPLICA = "no_replica"
    QUEUED = "queued"
    RUNNING = "running"


@dataclass(frozen=True)
class Advance(Generic[Holder]):
    """What the passing of time has brought."""

    granted: Sequence[Ticket[Holder]]
    expired: Sequence[tuple[Ticket[Holder], Expiry]]


class SlotQueue(Generic[Holder]):
    """The queue of one route and the slots of its replicas."""

    def __init__(
        self, limit: int, limit_bytes: int, *, now: float, line: Line[Holder] | None = None
    ) -> None:
        self.limit = limit
        self.limit_bytes = limit_bytes
        self.queued_bytes = 0
        self.in_flight = 0
        self.completed = 0
        self.service_s = 0.0
        """Exponentially weighted mean of the time that a ticket had its slot; 0 = none yet."""
        self._line: Line[Holder] = Fifo() if line is None else line
        self._lobby: Fifo[Holder] = Fifo()
        """Those that wait for a replica but need no slot."""
        self._running: dict[Ticket[Holder], None] = {}
        self._replicas: dict[str, Replica] = {}
        self._open: list[Replica] = []
        self._changed_at = now
        """When the route last got its first open replica, or lost its last one."""
        self._turn = 0
        self.ledger: Ledger | None = None
        """Writes down which slots are taken."""

    # What there is

    @property
    def queued(self) -> int:
        return len(self._line) + len(self._lobby)

    @property
    def ready(self) -> bool:
        """Whether the table names a replica that takes requests."""
        return bool(self._open)

    @property
    def slots(self) -> int:
        """Slots of the open replicas, free and taken."""
        return sum(replica.concurrency for replica in self._open)

    @property
    def replicas(self) -> Iterable[Replica]:
        """All replicas that are open, draining or gone with slots still taken."""
        return self._replicas.values()

    @property
    def waiting(self) -> Iterator[Ticket[Holder]]:
        yield from self._line
        yield from self._lobby

    @property
    def idle(self) -> bool:
        return not self._running and not self._line and not self._lobby

    def deadline(self, ticket: Ticket[Holder]) -> float:
        """When the ticket's time ends as things are: a new first replica starts the clock anew."""
        since = max(ticket.arrived_at, self._changed_at)
        return since + (ticket.timeout_s if self._open else ticket.hold_s)

    def retry_after_s(self) -> float:
        """When a place will be free: what waits, divided by what the slots get done."""
        least, most = RETRY_AFTER_S
        slots = self.slots
        if not slots:
            return min(most, max(least, self.service_s))
        return min(most, max(least, self.queued * self.service_s / slots))

    # Requests

    def submit(self, ticket: Ticket[Holder], now: float) -> Verdict:
        """Grants the ticket a replica, queues it, or refuses it for lack of room."""
        if not self._line or not ticket.needs_slot:
            replica = self._pick(ticket.needs_slot, now)
            if replica is not None:
                self._grant(ticket, replica, now)
                return Verdict.GRANTED
        if self.queued >= self.limit:
            return Verdict.QUEUE_FULL
        if self.queued_bytes + ticket.size_bytes > self.limit_bytes:
            return Verdict.QUEUE_BYTES_FULL
        self.queued_bytes += ticket.size_bytes
        (self._line if ticket.needs_slot else self._lobby).push(ticket)
        return Verdict.QUEUED

    def grow(self, ticket: Ticket[Holder], size_bytes: int) -> Verdict:
        """More of a waiting ticket's body came. Refused: the ticket stays until cancelled."""
        if self.queued_bytes + size_bytes > self.limit_bytes:
            return Verdict.QUEUE_BYTES_FULL
        ticket.size_bytes += size_bytes
        self.queued_bytes += size_bytes
        return Verdict.QUEUED

    def cancel(self, ticket: Ticket[Holder]) -> None:
        """A waiting ticket gives up its place."""
        (self._line if ticket.needs_slot else self._lobby).remove(ticket)
        self.queued_bytes -= ticket.size_bytes

    def release(self, ticket: Ticket[Holder], now: float) -> Sequence[Ticket[Holder]]:
        """The replica is done with the ticket: its handler has ended, or got nothing of it."""
        self._free(ticket, now)
        if ticket.needs_slot:
            self._learn(now - ticket.granted_at)
            self.completed += 1
        return self._pump(now) if self._line or self._lobby else ()

    def give_back(self, ticket: Ticket[Holder], now: float) -> Sequence[Ticket[Holder]]:
        """The replica refused the connection: nothing was sent, so the ticket goes first again.

        The replica gets nothing for `OUT_S`, or until the next table.
        """
        replica = self._free(ticket)
        replica.out_until = now + OUT_S
        ticket.replica = None
        self.queued_bytes += ticket.size_bytes
        (self._line if ticket.needs_slot else self._lobby).push_first(ticket)
        return self._pump(now)

    def withdraw(self, ticket: Ticket[Holder], now: float) -> Sequence[Ticket[Holder]]:
        """A granted ticket of which nothing was sent gives up its slot."""
        self._free(ticket)
        return self._pump(now)

    # Replicas and time

    def set_replicas(self, table: Iterable[ReplicaRoute], now: float) -> Sequence[Ticket[Holder]]:
        """Takes over the table. A replica that is no longer in it drains."""
        named = {entry.id: entry for entry in table}
        for entry in named.values():
            replica = self._replicas.setdefault(entry.id, Replica(entry.id))
            replica.concurrency = entry.concurrency
            replica.draining = entry.draining
            replica.foreign = entry.foreign
            replica.gone = False
            replica.out_until = 0.0
        for replica in list(self._replicas.values()):
            if replica.id not in named:
                replica.draining = replica.gone = True
                self._forget_if_empty(replica)
        was_ready = self.ready
        self._open = [r for r in self._replicas.values() if not r.draining and r.concurrency > 0]
        if self.ready != was_ready:
            self._changed_at = now
        return self._pump(now)

    def advance(self, now: float) -> Advance[Holder]:
        """Ends what has expired and lets replicas back in. An expired running ticket keeps its
        slot until `release`."""
        expired: list[tuple[Ticket[Holder], Expiry]] = []
        where = Expiry.QUEUED if self._open else Expiry.NO_REPLICA
        for ticket in [t for t in self.waiting if self.deadline(t) <= now]:
            self.cancel(ticket)
            expired.append((ticket, where))
        for ticket in self._running:
            if not ticket.expired and ticket.ends_at <= now:
                ticket.expired = True
                expired.append((ticket, Expiry.RUNNING))
        return Advance(self._pump(now), expired)

    def next_event_at(self, now: float) -> float | None:
        """When `advance` will have something to do; None when nothing is waiting or running."""
        times = [self.deadline(ticket) for ticket in self.waiting]
        times += [t.ends_at for t in self._running if not t.expired and t.ends_at < math.inf]
        if self._line or self._lobby:
            times += [r.out_until for r in self._open if r.out_until > now]
        return min(times, default=None)

    def clear(self) -> Sequence[Ticket[Holder]]:
        """Cancels everything that waits, and returns it."""
        waiting = list(self.waiting)
        for ticket in waiting:
            self.cancel(ticket)
        return waiting

    # Inside

    def _pick(self, needs_slot: bool, now: float) -> Replica | None:
        best: Replica | None = None
        most = 0
        for replica in self._open:
            free = replica.concurrency - replica.taken - replica.foreign
            if replica.out_until > now or (needs_slot and free <= 0):
                continue
            if best is None or free > most or (free == most and replica.turn < best.turn):
                best, most = replica, free
        return best

    def _grant(self, ticket: Ticket[Holder], replica: Replica, now: float) -> None:
        ticket.replica = replica
        ticket.granted_at = now
        ticket.ends_at = max(ticket.arrived_at, self._changed_at) + ticket.timeout_s
        self._running[ticket] = None
        if ticket.needs_slot:
            replica.taken += 1
            self.in_flight += 1
            self._turn += 1
            replica.turn = self._turn
            if self.ledger is not None:
                self.ledger.take(replica, now)

    def _free(self, ticket: Ticket[Holder], now: float | None = None) -> Replica:
        del self._running[ticket]
        replica = ticket.replica
        assert replica is not None, "a running ticket has a replica"
        if ticket.needs_slot:
            replica.taken -= 1
            self.in_flight -= 1
            if self.ledger is not None:
                self.ledger.give(replica, 0.0 if now is None else now - ticket.granted_at)
            self._forget_if_empty(replica)
        return replica

    def _forget_if_empty(self, replica: Replica) -> None:
        if replica.gone and not replica.taken:
            del self._replicas[replica.id]

    def _pump(self, now: float) -> Sequence[Ticket[Holder]]:
        granted: list[Ticket[Holder]] = []
        for line, needs_slot in ((self._lobby, False), (self._line, True)):
            while line and (replica := self._pick(needs_slot, now)) is not None:
                ticket = line.take()
                self.queued_bytes -= ticket.size_bytes
                self._grant(ticket, replica, now)
                granted.append(ticket)
        return granted

    def _learn(self, service_s: float) -> None:
        if self.service_s:
            self.service_s += SERVICE_TIME_WEIGHT * (service_s - self.service_s)
        else:
            self.service_s = service_s
