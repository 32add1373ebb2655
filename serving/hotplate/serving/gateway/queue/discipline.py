"""A route's queue and its replicas' slots: who waits, who is served, by which replica.

Pure: no I/O, time is an argument. A caller submits tickets, and every call answers with the
tickets whose place has changed by it; the caller then sends or refuses those. The rules:

* A ticket is bound to a replica only when it has that replica's slot, and one free slot releases
  one ticket (*metered release*), to the open replica with most free slots.
* A slot comes back by `release` only. Whoever calls it must know that the replica's handler has
  ended; that a caller left or a time ran out is no reason (*slot truth*). The one exception is a
  WebSocket's that is not waited for (`abandoned.py`), which is withdrawn.
* No ticket waits while a slot that it could have is free.
* No slot goes to a ticket that cannot be answered in the time it has left, and none waits that
  cannot get a slot in time, as far as anything is known (`feasibility.py`).

Here is what happens to a ticket, and in which order. What waits is kept in `waiting.py`, what a
replica has in `granted.py`, the replicas' slots in `replica_slots.py`; `fairness.py` says whose
turn it is, and `overflow.py` who has to leave a full queue.

Nothing that one request costs grows with how many wait or run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Generic

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import SHORT_STALL_S
from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.deadlines import Deadlines
from hotplate.serving.gateway.queue.estimates import Estimates
from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.feasibility import WAY_MOST_S, comes_too_late, is_hopeless
from hotplate.serving.gateway.queue.granted import Granted
from hotplate.serving.gateway.queue.overflow import Room
from hotplate.serving.gateway.queue.replica_slots import Replica, Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Holder, Ticket
from hotplate.serving.gateway.queue.waiting import Waiting


class SlotQueue(Generic[Holder]):
    """The queue of one route and the slots of its replicas."""

    def __init__(self, limit: int, limit_bytes: int, *, now: float) -> None:
        self.completed = 0
        self.service = ServiceTime()
        self._slots = Slots()
        self.line: FairLine[Holder] = FairLine(self.service)
        self.room: Room[Holder] = Room(self.line, limit, limit_bytes)
        self._deadlines: Deadlines[Holder] = Deadlines()
        self.waiting: Waiting[Holder] = Waiting(
            self._slots, self.line, self.room, self._deadlines, now=now
        )
        self.granted: Granted[Holder] = Granted(self._slots, self.line)
        self.estimates: Estimates[Holder] = Estimates(
            self._slots, self.line, self.waiting, self.service
        )
        self._numbers = 0

    # What there is

    @property
    def queued(self) -> int:
        return self.line.count + len(self.waiting.lobby)

    @property
    def queued_bytes(self) -> int:
        return self.waiting.size_bytes

    @property
    def in_flight(self) -> int:
        """Requests that have a slot."""
        return self.granted.in_flight

    @property
    def ready(self) -> bool:
        """Whether the table names a replica that takes requests."""
        return self._slots.ready

    @property
    def slots(self) -> int:
        """Slots of the open replicas, free and taken."""
        return self._slots.total

    @property
    def replicas(self) -> Collection[Replica]:
        """All that are open, draining, or gone with slots still taken."""
        return self._slots.replicas

    @property
    def idle(self) -> bool:
        return not self.granted.count and not self.queued

    # Requests

    def submit(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """Grants the ticket a replica, queues it, pushing out another if need be, or refuses it."""
        self._numbers += 1
        ticket.number = self._numbers
        slots, waiting = self._slots, self.waiting
        since = ticket.arrived_at
        if since < waiting.changed_at:
            since = waiting.changed_at
        ticket.ends_at = since + (ticket.timeout_s if slots.ready else ticket.hold_s)
        if not ticket.needs_slot:
            return self._submit_to_lobby(ticket, now)
        line = self.line
        if not line.count:
            if ticket.ends_at - now < self.service.least_s and is_hopeless(
                ticket, self.service, now
            ):
                return Changes((), ((ticket, End.NO_CAPACITY),))
            replica = slots.take()
            if replica is not None:
                self.granted.grant(ticket, replica, now)
                self._deadlines.add(ticket)
                return Changes((ticket,))
        if slots.ready and comes_too_late(ticket, line, self.service, slots.total, now):
            return Changes((), ((ticket, End.NO_CAPACITY),))
        room = self.room
        size_bytes = waiting.size_bytes + ticket.size_bytes
        if line.count >= room.limit or size_bytes > room.limit_bytes:
            fits, pushed_out = waiting.make_room(ticket)
            if not fits:
                return Changes((), [*pushed_out, (ticket, End.SHARE_FULL)])
            waiting.join(ticket, now)
            return Changes((), pushed_out)
        waiting.join(ticket, now)
        return NOTHING

    def answered(self, ticket: Ticket[Holder], now: float) -> None:
        """The ticket's answer has begun, in time; from here on it may last."""
        if ticket.needs_slot and ticket.replica is not None and not ticket.answered_at:
            ticket.replica.answering += 1
        ticket.answered_at = now
        ticket.ends_at = math.inf

    def release(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """The replica is done with the ticket: its handler has ended, or got nothing of it."""
        if not ticket.needs_slot:
            self.granted.let_out(ticket)
            return self._after_release(now)
        self.completed += 1
        since, answered_at = ticket.granted_at, ticket.answered_at or now
        if ticket.whole_at > since:  # how slow a caller is says nothing of the others
            since = ticket.whole_at
            answered_at = max(answered_at, since)
        self.service.learn(now - since, answered_at - since, now)
        replica = ticket.replica
        if self.line.count and replica is not None and self._slots.passes_on(replica):
            self.granted.end(ticket, replica, now, typical=True)
            return self._pump(now, replica)
        self.granted.free(ticket, now, typical=True)
        return self._after_release(now)

    def give_back(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """The ticket's replica did not serve it, and it may be served yet: it goes first again."""
        self.granted.free(ticket, now, typical=False)
        self.waiting.put_back(ticket)
        return self._pump(now)

    def withdraw(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """A granted ticket gives up its slot. How long it had it says nothing of others: nothing of
        it was sent, or its handler goes on for nobody."""
        self.granted.free(ticket, now, typical=False)
        return self._after_release(now)

    # Replicas, settings and time

    def set_limits(self, limit: int, limit_bytes: int, weights: Mapping[str, float]) -> None:
        """How much may wait, and the organizations' weights, from now on."""
        self.room.limit, self.room.limit_bytes = limit, limit_bytes
        self.line.weigh(weights)

    def set_replicas(self, table: Iterable[ReplicaRoute], now: float) -> Changes[Holder]:
        """Takes over the table. A replica that is no longer in it drains."""
        was_ready = self._slots.ready
        self._slots.take_over(table)
        if self._slots.ready != was_ready:
            self.waiting.restart_clocks(now)
        return self._pump(now)

    def put_out(self, replica_id: str, reason: str) -> None:
        """The replica gets nothing until it is let in; what it has stays with it."""
        self._slots.put_out(replica_id, reason)

    def why_out(self, replica_id: str) -> str:
        """Empty = it is in, or not known."""
        return next((r.out for r in self.replicas if r.id == replica_id), "")

    def let_in(self, replica_id: str, now: float) -> Changes[Holder]:
        self._slots.let_in(replica_id)
        return self._pump(now)

    def advance(self, now: float) -> Changes[Holder]:
        """Ends what has run out of time."""
        ended: list[tuple[Ticket[Holder], End]] = []
        for ticket in self._deadlines.over(now):
            if ticket.place == RUNNING:
                ticket.expired = True
                ended.append((ticket, End.RUNNING))
            else:
                self.waiting.cancel(ticket)
                ended.append((ticket, End.WAITING if self._slots.ready else End.NO_REPLICA))
        if self.line.count:
            self._slots.outgrow_stalls(now)
        granted, refused = self._pump(now)
        return Changes(granted, [*ended, *refused])

    def next_event_at(self) -> float | None:
        """When `advance` will have something to do; None when nothing is waiting or running."""
        at = self._deadlines.next_at
        return at if at < math.inf else None

    def stalls_at(self, now: float) -> float:
        """When to `advance` for those whom learnt slots keep out; infinite = there are none."""
        waits = self.line.count and any(self._slots.learning)
        return now + SHORT_STALL_S if waits else math.inf

    # Inside

    def _submit_to_lobby(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        replica = self._slots.next()
        if replica is not None:
            self.granted.let_past(ticket, replica, now)
            self._deadlines.add(ticket)
            return Changes((ticket,))
        waiting, room = self.waiting, self.room
        full = waiting.size_bytes + ticket.size_bytes > room.limit_bytes
        if full or len(waiting.lobby) >= room.limit:
            return Changes((), ((ticket, End.SHARE_FULL),))
        waiting.join(ticket, now)
        return NOTHING

    def _after_release(self, now: float) -> Changes[Holder]:
        if self.line.count:
            return self._pump(now)
        if self.line.contested and self._slots.any_free:
            self.line.calm()
        return NOTHING

    def _pump(self, now: float, given: Replica | None = None) -> Changes[Holder]:
        """Grants what can be granted; `given`: that a slot of it came back is not yet said."""
        granted: list[Ticket[Holder]] = []
        ended: list[tuple[Ticket[Holder], End]] = []
        line, slots, service, waiting = self.line, self._slots, self.service, self.waiting
        while waiting.lobby and (replica := slots.next()) is not None:
            ticket, _ = waiting.lobby.popitem(last=False)
            waiting.size_bytes -= ticket.size_bytes
            self.granted.let_past(ticket, replica, now)
            granted.append(ticket)
        while line.count:
            replica, given = given or slots.take(), None
            if replica is None:
                break
            ticket = line.take(now)
            waiting.size_bytes -= ticket.size_bytes
            close = ticket.ends_at - now < service.fair_s + WAY_MOST_S
            if close and is_hopeless(ticket, service, now, contended=line.count > 0):
                self.granted.return_slot(replica)
                ticket.place = ENDED
                ended.append((ticket, End.NO_CAPACITY))
            else:
                self.granted.grant(ticket, replica, now)
                granted.append(ticket)
        return Changes(granted, ended)
