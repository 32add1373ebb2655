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
  cannot get a slot in time, as far as anything is known (`estimate.py`).
* Whose turn it is says `fairness.py`, who has to leave a full queue `room.py`.

Nothing that one request costs grows with how many wait or run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.queue.adaptive_limit import SHORT_STALL_S, AdaptiveLimit
from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.deadlines import Deadlines
from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.feasibility import WAY_MOST_S, comes_too_late, is_hopeless
from hotplate.serving.gateway.queue.overflow import Room
from hotplate.serving.gateway.queue.replica_slots import Ledger, Replica, Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, WAITING, Holder, Ticket

SLOW_BODY: Final = 0.1
"""A body that came for longer than this part of a request's time says nothing of its replica."""


class SlotQueue(Generic[Holder]):
    """The queue of one route and the slots of its replicas."""

    def __init__(self, limit: int, limit_bytes: int, *, now: float) -> None:
        self.in_flight = 0
        self.queued_bytes = 0
        self.completed = 0
        self.service = ServiceTime()
        self._slots = Slots()
        self.line: FairLine[Holder] = FairLine(self.service)
        self.ledger: Ledger | None = None
        """Writes down which slots are taken."""
        self.room: Room[Holder] = Room(self.line, limit, limit_bytes)
        self._lobby: OrderedDict[Ticket[Holder], None] = OrderedDict()
        """Those that wait for a replica but need no slot, first come, first served."""
        self._deadlines: Deadlines[Holder] = Deadlines()
        self._running = 0
        self._numbers = 0
        self._changed_at = now
        """When the route last got its first open replica, or lost its last one."""
        self._held_since: float | None = None
        """Since when somebody has waited for the first replica; None = nobody does."""
        self.cold_start_s = 0.0
        """How long the newest wait for a first replica took; 0 = there was none yet."""

    # What there is

    @property
    def queued(self) -> int:
        return self.line.count + len(self._lobby)

    @property
    def waiting(self) -> Iterator[Ticket[Holder]]:
        """Everybody, in the order in which they would go if nobody came."""
        yield from list(self._lobby)
        yield from self.line

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
        return not self._running and not self.line.count and not self._lobby

    def retry_after_s(self, now: float) -> float:
        """When a request could have its slot that comes again: what waits now is done by then."""
        if not self._slots.ready:
            return self.start_s(0, now) or 0.0
        return self.service.work_s(self.line.count) / self._slots.total

    def start_s(self, ahead: float, now: float) -> float | None:
        """When a request gets its slot, from now, with so many ahead of it; None = not known."""
        slots = self._slots
        if not slots.ready:
            if self._held_since is None or not self.cold_start_s:
                return self.cold_start_s or None
            return max(0.0, self._held_since + self.cold_start_s - now)
        if not self.line.count and slots.any_free:
            return 0.0
        # Of those that run, the first is done in half the time between two that end, on average.
        return self.service.work_s(ahead + 0.5) / slots.total

    # Requests

    def submit(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """Grants the ticket a replica, queues it, pushing out another if need be, or refuses it."""
        self._numbers += 1
        ticket.number = self._numbers
        slots = self._slots
        since = ticket.arrived_at if ticket.arrived_at > self._changed_at else self._changed_at
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
                self._grant(ticket, replica, now)
                self._watch(ticket)
                return Changes((ticket,))
        if slots.ready and comes_too_late(ticket, line, self.service, slots.total, now):
            return Changes((), ((ticket, End.NO_CAPACITY),))
        room = self.room
        size_bytes = self.queued_bytes + ticket.size_bytes
        if line.count >= room.limit or size_bytes > room.limit_bytes:
            fits, pushed_out = self._make_room(ticket)
            if not fits:
                return Changes((), [*pushed_out, (ticket, End.SHARE_FULL)])
            self._wait(ticket, now)
            return Changes((), pushed_out)
        self._wait(ticket, now)
        return NOTHING

    def grow(self, ticket: Ticket[Holder], size_bytes: int) -> Changes[Holder]:
        """More of a waiting ticket's body came. Refused, it has lost its place."""
        if self.queued_bytes + size_bytes > self.room.limit_bytes:
            self.cancel(ticket)
            return Changes((), ((ticket, End.SHARE_FULL),))
        self.queued_bytes += size_bytes
        if ticket.needs_slot:
            self.line.grow(ticket, size_bytes)
        else:
            ticket.size_bytes += size_bytes
        return Changes()

    def cancel(self, ticket: Ticket[Holder]) -> None:
        """A waiting ticket gives up its place."""
        if ticket.needs_slot:
            self.line.leave(ticket)
        else:
            del self._lobby[ticket]
        ticket.place = ENDED
        self.queued_bytes -= ticket.size_bytes
        if not self.queued:
            self._held_since = None

    def answered(self, ticket: Ticket[Holder], now: float) -> None:
        """The ticket's answer has begun, in time; from here on it may last."""
        if ticket.needs_slot and ticket.replica is not None and not ticket.answered_at:
            ticket.replica.answering += 1
        ticket.answered_at = now
        ticket.ends_at = math.inf

    def release(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """The replica is done with the ticket: its handler has ended, or got nothing of it."""
        if not ticket.needs_slot:
            self._let_out(ticket)
            return self._after_release(now)
        self.completed += 1
        since, answered_at = ticket.granted_at, ticket.answered_at or now
        if ticket.whole_at > since:  # how slow a caller is says nothing of the others
            since = ticket.whole_at
            answered_at = max(answered_at, since)
        self.service.learn(now - since, answered_at - since, now)
        replica = ticket.replica
        if self.line.count and replica is not None and self._slots.passes_on(replica):
            self._end(ticket, replica, now, typical=True)
            return self._pump(now, replica)
        self._free(ticket, now, typical=True)
        return self._after_release(now)

    def give_back(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """The ticket's replica did not serve it, and it may be served yet: it goes first again."""
        self._free(ticket, now, typical=False)
        ticket.replica = None
        ticket.place = WAITING
        self.queued_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self.line.put_back(ticket)
        else:
            self._lobby[ticket] = None
            self._lobby.move_to_end(ticket, last=False)
        ticket.ends_at = self._ends_at(ticket)
        self._watch(ticket)
        return self._pump(now)

    def withdraw(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        """A granted ticket gives up its slot. How long it had it says nothing of others: nothing of
        it was sent, or its handler goes on for nobody."""
        self._free(ticket, now, typical=False)
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
            self._changed_at = now
            self._restart_clocks(now)
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
                self.cancel(ticket)
                ended.append((ticket, End.WAITING if self._slots.ready else End.NO_REPLICA))
        if self.line.count:
            self._outgrow_stalls(now)
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

    def clear(self) -> Sequence[Ticket[Holder]]:
        """Cancels everything that waits, and returns it."""
        waiting = list(self.waiting)
        for ticket in waiting:
            self.cancel(ticket)
        return waiting

    # Inside: coming and going

    def _submit_to_lobby(self, ticket: Ticket[Holder], now: float) -> Changes[Holder]:
        replica = self._slots.next()
        if replica is not None:
            self._let_past(ticket, replica, now)
            self._watch(ticket)
            return Changes((ticket,))
        room = self.room
        full = self.queued_bytes + ticket.size_bytes > room.limit_bytes
        if full or len(self._lobby) >= room.limit:
            return Changes((), ((ticket, End.SHARE_FULL),))
        self._wait(ticket, now)
        return Changes()

    def _wait(self, ticket: Ticket[Holder], now: float) -> None:
        ticket.place = WAITING
        self.queued_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self.line.join(ticket)
            if self.room.watched:
                self.room.grew(ticket.organization)
        else:
            self._lobby[ticket] = None
        self._watch(ticket)
        if self._held_since is None and not self._slots.ready:
            self._held_since = now

    def _make_room(self, ticket: Ticket[Holder]) -> tuple[bool, list[tuple[Ticket[Holder], End]]]:
        """Whether the ticket may wait, and who had to go for it."""
        room = self.room
        pushed_out: list[tuple[Ticket[Holder], End]] = []
        while (
            self.line.count >= room.limit
            or self.queued_bytes + ticket.size_bytes > room.limit_bytes
        ):
            other = room.to_push_out(ticket)
            if other is None:
                return False, pushed_out
            self.cancel(other)
            pushed_out.append((other, End.PUSHED_OUT))
        return True, pushed_out

    def _let_past(self, ticket: Ticket[Holder], replica: Replica, now: float) -> None:
        """The ticket goes to the replica without a slot of it."""
        ticket.place = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self._running += 1

    def _grant(self, ticket: Ticket[Holder], replica: Replica, now: float) -> None:
        """The ticket has got a slot of the replica."""
        ticket.place = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self._running += 1
        self.in_flight += 1
        self.line.charge(ticket)
        adaptive = replica.adaptive
        if adaptive is not None:
            ticket.adaptive, ticket.mark = adaptive, adaptive.begin(now)
        if self.ledger is not None:
            self.ledger.take(replica, now)

    def _free(self, ticket: Ticket[Holder], now: float, *, typical: bool) -> None:
        replica = ticket.replica
        assert replica is not None, "a running ticket has a replica"
        if ticket.needs_slot:
            self._slots.give(replica)
            self._end(ticket, replica, now, typical=typical)
        else:
            self._let_out(ticket)

    def _let_out(self, ticket: Ticket[Holder]) -> None:
        """One that went without a slot has ended."""
        ticket.place = ENDED
        self._running -= 1

    def _end(self, ticket: Ticket[Holder], replica: Replica, now: float, *, typical: bool) -> None:
        """One that had a slot has ended."""
        ticket.place = ENDED
        self._running -= 1
        self.in_flight -= 1
        slot_s = now - ticket.granted_at
        if self.ledger is not None:
            self.ledger.give(replica, slot_s if typical else 0.0)
        self.line.settle(ticket, slot_s, typical=typical)
        if ticket.answered_at:
            replica.answering -= 1
        if ticket.adaptive is not None:
            self._teach(ticket, ticket.adaptive, now, typical=typical)
            self._slots.resize(replica)

    def _teach(
        self, ticket: Ticket[Holder], adaptive: AdaptiveLimit, now: float, *, typical: bool
    ) -> None:
        """Its replica's limit learns from the ticket, unless a slow caller took its time."""
        begun_at, ticket.adaptive = ticket.granted_at, None
        slow_s, waiting = ticket.whole_at - begun_at, self.line.count > 0
        if typical and ticket.teaches and slow_s <= SLOW_BODY * (now - begun_at):
            adaptive.end(begun_at, ticket.mark, now, waiting=waiting)
        else:
            adaptive.drop(begun_at, ticket.mark, now, waiting=waiting)

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
        line, slots, service = self.line, self._slots, self.service
        while self._lobby and (replica := slots.next()) is not None:
            ticket, _ = self._lobby.popitem(last=False)
            self.queued_bytes -= ticket.size_bytes
            self._let_past(ticket, replica, now)
            granted.append(ticket)
        while line.count:
            replica, given = given or slots.take(), None
            if replica is None:
                break
            ticket = line.take(now)
            self.queued_bytes -= ticket.size_bytes
            close = ticket.ends_at - now < service.fair_s + WAY_MOST_S
            if close and is_hopeless(ticket, service, now, contended=line.count > 0):
                slots.give(replica)
                if self.ledger is not None:
                    self.ledger.give(replica, 0.0)
                ticket.place = ENDED
                ended.append((ticket, End.NO_CAPACITY))
            else:
                self._grant(ticket, replica, now)
                granted.append(ticket)
        return Changes(granted, ended)

    # Inside: time

    def _outgrow_stalls(self, now: float) -> None:
        """Where every slot has an answer that goes on, there may be more."""
        for replica in list(self._slots.learning):
            adaptive = replica.adaptive
            if adaptive is not None and _is_stalled(replica) and adaptive.stalled(now):
                self._slots.resize(replica)

    def _ends_at(self, ticket: Ticket[Holder]) -> float:
        """When its time is over as things are: a new first replica starts the clock anew."""
        since = max(ticket.arrived_at, self._changed_at)
        return since + (ticket.timeout_s if self._slots.ready else ticket.hold_s)

    def _watch(self, ticket: Ticket[Holder]) -> None:
        if ticket.ends_at < math.inf:
            self._deadlines.add(ticket)

    def _restart_clocks(self, now: float) -> None:
        """The first replica is open, or the last one is not any more."""
        waiting = list(self.waiting)
        for ticket in waiting:
            ticket.ends_at = self._ends_at(ticket)
        self.line.sort()
        self._deadlines.replace(waiting)
        if self._held_since is not None and self._slots.ready:
            self.cold_start_s = now - self._held_since
        self._held_since = now if waiting and not self._slots.ready else None


def _is_stalled(replica: Replica) -> bool:
    return not replica.out and 0 < replica.taken == replica.answering and replica.free <= 0
