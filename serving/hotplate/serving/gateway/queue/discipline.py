"""A route's queue and its replicas' slots: what waits, what is served, and by which replica.

Pure: no I/O, time is an argument. The dispatcher submits tickets, and every call returns the
tickets whose state it has changed; the dispatcher then sends or refuses those. The rules:

* A ticket is bound to a replica only when it has that replica's slot, and one free slot releases
  one ticket (*metered release*), to the open replica with most free slots.
* A slot comes back by `release` only. It is called only when the replica's handler is known to have
  ended; it is not enough that a caller left or that a time limit passed (*slot truth*). The one
  exception is a WebSocket whose handler does not end (`abandoned.py`): its ticket is withdrawn.
* No ticket waits while a slot that it could have is free.
* No slot goes to a ticket that cannot be answered in its remaining time, and no ticket waits that
  cannot get a slot in time, as far as that is known (`feasibility.py`).

This file says what happens to a ticket, and in which order. `waiting.py` has the tickets that wait,
`granted.py` those that run, `replica_slots.py` the replicas' slots; `fairness.py` says which ticket
is next, and `overflow.py` which one has to leave a full queue.

The cost of a request does not grow with the number of requests that wait or run.
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
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.feasibility import TRANSIT_MOST_S, comes_too_late, is_hopeless
from hotplate.serving.gateway.queue.granted import Granted
from hotplate.serving.gateway.queue.overflow import Overflow
from hotplate.serving.gateway.queue.replica_slots import Replica, Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Ticket, WaiterT
from hotplate.serving.gateway.queue.waiting import Waiting


class SlotQueue(Generic[WaiterT]):
    """The queue of one route and the slots of its replicas."""

    def __init__(self, limit: int, limit_bytes: int, *, now: float) -> None:
        self.completed = 0
        self.service = ServiceTime()
        self._slots = Slots()
        self.answers = self._slots.answers
        self.fair_queue: FairQueue[WaiterT] = FairQueue(self.service)
        self.overflow: Overflow[WaiterT] = Overflow(self.fair_queue, limit, limit_bytes)
        self._deadlines: Deadlines[WaiterT] = Deadlines()
        self.waiting: Waiting[WaiterT] = Waiting(
            self._slots, self.fair_queue, self.overflow, self._deadlines, now=now
        )
        self.granted: Granted[WaiterT] = Granted(self._slots, self.fair_queue)
        self.estimates: Estimates[WaiterT] = Estimates(
            self._slots, self.fair_queue, self.waiting, self.service
        )
        self._numbers = 0

    # What there is

    @property
    def queued(self) -> int:
        return self.fair_queue.count + len(self.waiting.slotless)

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

    def submit(self, ticket: Ticket[WaiterT], now: float) -> Changes[WaiterT]:
        """Grants the ticket a replica, or queues it (pushing out another if need be), or refuses
        it."""
        self._numbers += 1
        ticket.number = self._numbers
        slots, waiting = self._slots, self.waiting
        since = ticket.arrived_at
        if since < waiting.readiness_changed_at:
            since = waiting.readiness_changed_at
        ticket.ends_at = since + (ticket.timeout_s if slots.ready else ticket.hold_s)
        if not ticket.needs_slot:
            return self._submit_slotless(ticket, now)
        fair_queue = self.fair_queue
        if not fair_queue.count:
            if ticket.ends_at - now < self.service.least_s and is_hopeless(
                ticket, self.service, now
            ):
                return Changes((), ((ticket, End.NO_CAPACITY),))
            replica = slots.take()
            if replica is not None:
                self.granted.grant(ticket, replica, now)
                self._deadlines.add(ticket)
                return Changes((ticket,))
        if slots.ready and comes_too_late(ticket, fair_queue, self.service, slots.total, now):
            return Changes((), ((ticket, End.NO_CAPACITY),))
        overflow = self.overflow
        size_bytes = waiting.size_bytes + ticket.size_bytes
        if fair_queue.count >= overflow.limit or size_bytes > overflow.limit_bytes:
            fits, pushed_out = waiting.make_room(ticket)
            if not fits:
                return Changes((), [*pushed_out, (ticket, End.SHARE_FULL)])
            waiting.join(ticket, now)
            return Changes((), pushed_out)
        waiting.join(ticket, now)
        return NOTHING

    def response_began(self, ticket: Ticket[WaiterT], now: float) -> None:
        """The ticket's response has begun, in time; from now on no time limit applies to it."""
        if ticket.needs_slot and ticket.replica is not None and not ticket.response_began_at:
            ticket.replica.responding += 1
        ticket.response_began_at = now
        ticket.ends_at = math.inf

    def release(self, ticket: Ticket[WaiterT], now: float) -> Changes[WaiterT]:
        """The replica is done with the ticket: its handler has ended, or received nothing."""
        if not ticket.needs_slot:
            self.granted.end_without_slot(ticket)
            return self._after_release(now)
        self.completed += 1
        since, response_began_at = ticket.granted_at, ticket.response_began_at or now
        if ticket.body_received_at > since:  # a slow caller says nothing about other requests
            since = ticket.body_received_at
            response_began_at = max(response_began_at, since)
        self.service.learn(now - since, response_began_at - since, now)
        replica = ticket.replica
        if self.fair_queue.count and replica is not None and self._slots.can_hand_over(replica):
            self.granted.end(ticket, replica, now, typical=True)
            return self._pump(now, replica)
        self.granted.free(ticket, now, typical=True)
        return self._after_release(now)

    def requeue(self, ticket: Ticket[WaiterT], now: float) -> Changes[WaiterT]:
        """The ticket's replica did not serve it, but another one may: it becomes first in line."""
        self.granted.free(ticket, now, typical=False)
        self.waiting.requeue(ticket)
        return self._pump(now)

    def withdraw(self, ticket: Ticket[WaiterT], now: float) -> Changes[WaiterT]:
        """A granted ticket gives up its slot. The time that it had the slot is not learnt from:
        nothing of it was sent, or its handler goes on although its caller has gone."""
        self.granted.free(ticket, now, typical=False)
        return self._after_release(now)

    # Replicas, settings and time

    def set_limits(self, limit: int, limit_bytes: int, weights: Mapping[str, float]) -> None:
        """Sets how much may wait, and the organizations' weights."""
        self.overflow.limit, self.overflow.limit_bytes = limit, limit_bytes
        self.fair_queue.set_weights(weights)

    def set_replicas(self, table: Iterable[ReplicaRoute], now: float) -> Changes[WaiterT]:
        """Replaces the table of replicas. A replica that is no longer in it drains."""
        was_ready = self._slots.ready
        self._slots.update(table)
        if self._slots.ready != was_ready:
            self.waiting.restart_clocks(now)
        return self._pump(now)

    def eject(self, replica_id: str, reason: str) -> None:
        """The replica gets no requests until it is restored; it keeps those that it has."""
        self._slots.eject(replica_id, reason)

    def ejection_reason(self, replica_id: str) -> str:
        """Why the replica is ejected; empty = it is not, or there is no such replica."""
        return self.ejection_reasons().get(replica_id, "")

    def ejection_reasons(self) -> dict[str, str]:
        """By ejected replica, why it is."""
        return {r.id: r.ejection_reason for r in self.replicas if r.ejection_reason}

    def restore(self, replica_id: str, now: float) -> Changes[WaiterT]:
        """The replica may get requests again."""
        self._slots.restore(replica_id)
        return self._pump(now)

    def advance(self, now: float) -> Changes[WaiterT]:
        """Ends every ticket whose time is over."""
        ended: list[tuple[Ticket[WaiterT], End]] = []
        for ticket in self._deadlines.expired(now):
            if ticket.state == RUNNING:
                ticket.expired = True
                ended.append((ticket, End.RUNNING))
            else:
                self.waiting.cancel(ticket)
                ended.append((ticket, End.WAITING if self._slots.ready else End.NO_REPLICA))
        if self.fair_queue.count:
            self._slots.grow_stalled(now)
        granted, refused = self._pump(now)
        return Changes(granted, [*ended, *refused])

    def next_event_at(self) -> float | None:
        """When `advance` will have something to do; None when nothing is waiting or running."""
        at = self._deadlines.next_at
        return at if at < math.inf else None

    def stalls_at(self, now: float) -> float:
        """When to `advance` for tickets that a learnt number of slots keeps waiting; infinite =
        there are none."""
        waits = self.fair_queue.count and any(self._slots.learning)
        return now + SHORT_STALL_S if waits else math.inf

    # Inside

    def _submit_slotless(self, ticket: Ticket[WaiterT], now: float) -> Changes[WaiterT]:
        replica = self._slots.most_free()
        if replica is not None:
            self.granted.grant_without_slot(ticket, replica, now)
            self._deadlines.add(ticket)
            return Changes((ticket,))
        waiting, overflow = self.waiting, self.overflow
        full = waiting.size_bytes + ticket.size_bytes > overflow.limit_bytes
        if full or len(waiting.slotless) >= overflow.limit:
            return Changes((), ((ticket, End.SHARE_FULL),))
        waiting.join(ticket, now)
        return NOTHING

    def _after_release(self, now: float) -> Changes[WaiterT]:
        if self.fair_queue.count:
            return self._pump(now)
        if self.fair_queue.contested and self._slots.any_free:
            self.fair_queue.end_contest()
        return NOTHING

    def _pump(self, now: float, freed: Replica | None = None) -> Changes[WaiterT]:
        """Grants what can be granted, first a slot of `freed`: a replica whose slot has come back
        and still counts as taken."""
        granted: list[Ticket[WaiterT]] = []
        ended: list[tuple[Ticket[WaiterT], End]] = []
        fair_queue, slots, service, waiting = (
            self.fair_queue,
            self._slots,
            self.service,
            self.waiting,
        )
        while waiting.slotless and (replica := slots.most_free()) is not None:
            ticket, _ = waiting.slotless.popitem(last=False)
            waiting.size_bytes -= ticket.size_bytes
            self.granted.grant_without_slot(ticket, replica, now)
            granted.append(ticket)
        while fair_queue.count:
            replica, freed = freed or slots.take(), None
            if replica is None:
                break
            ticket = fair_queue.take(now)
            waiting.size_bytes -= ticket.size_bytes
            close = ticket.ends_at - now < service.fair_s + TRANSIT_MOST_S
            if close and is_hopeless(ticket, service, now, contended=fair_queue.count > 0):
                self.granted.release_unused(replica, now)
                ticket.state = ENDED
                ended.append((ticket, End.NO_CAPACITY))
            else:
                self.granted.grant(ticket, replica, now)
                granted.append(ticket)
        return Changes(granted, ended)
