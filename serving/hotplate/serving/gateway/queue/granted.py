"""The tickets that a replica has, with one of its slots or without. Pure.

The grant and the end of a ticket are noted here in every place that counts them: in its flow
(`fairness.py`), in the slot recorder, and in its replica's limit (`adaptive_limit.py`).
"""

from __future__ import annotations

from typing import Final, Generic

from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.replica_slots import Replica, SlotRecorder, Slots
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Ticket, WaiterT

SLOW_BODY: Final = 0.1
"""If a body took longer to arrive than this part of the request's time, the request is no sample
of its replica's speed."""


class Granted(Generic[WaiterT]):
    """The running tickets of a route."""

    def __init__(self, slots: Slots, fair_queue: FairQueue[WaiterT]) -> None:
        self.count = 0
        self.in_flight = 0
        """Those of them that have a slot."""
        self._by_grant: dict[Ticket[WaiterT], None] = {}
        """The tickets with a slot, the earliest granted first."""
        self.slot_recorder: SlotRecorder | None = None
        """Records which slots are taken; None where no other gateway has to know."""
        self._slots = slots
        self._fair_queue = fair_queue

    @property
    def oldest_at(self) -> float | None:
        """Since when the ticket that has its slot for longest has it; None = none has one."""
        oldest = next(iter(self._by_grant), None)
        return None if oldest is None else oldest.granted_at

    def grant_without_slot(self, ticket: Ticket[WaiterT], replica: Replica, now: float) -> None:
        """The ticket goes to the replica and takes no slot."""
        ticket.state = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self.count += 1

    def end_without_slot(self, ticket: Ticket[WaiterT]) -> None:
        """A ticket that took no slot has ended."""
        ticket.state = ENDED
        self.count -= 1

    def grant(self, ticket: Ticket[WaiterT], replica: Replica, now: float) -> None:
        """The ticket has a slot of the replica from now on."""
        ticket.state = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self.count += 1
        self.in_flight += 1
        self._by_grant[ticket] = None
        replica.note_taken(now)
        self._fair_queue.charge(ticket)
        adaptive = replica.adaptive
        if adaptive is not None:
            ticket.adaptive, ticket.mark = adaptive, adaptive.begin(now)
        if self.slot_recorder is not None:
            self.slot_recorder.take(replica, now)

    def free(self, ticket: Ticket[WaiterT], now: float, *, typical: bool) -> None:
        """The ticket has ended. Its slot, if it had one, comes back."""
        replica = ticket.replica
        assert replica is not None, "a running ticket has a replica"
        if ticket.needs_slot:
            self._slots.release(replica)
            self.end(ticket, replica, now, typical=typical)
        else:
            self.end_without_slot(ticket)

    def end(self, ticket: Ticket[WaiterT], replica: Replica, now: float, *, typical: bool) -> None:
        """A ticket that had a slot has ended; the slot goes to another one, or has come back."""
        ticket.state = ENDED
        self.count -= 1
        self.in_flight -= 1
        del self._by_grant[ticket]
        replica.note_free(now)
        slot_s = now - ticket.granted_at
        if self.slot_recorder is not None:
            self.slot_recorder.release(replica, slot_s if typical else 0.0)
        self._fair_queue.settle(ticket, slot_s, typical=typical)
        if ticket.response_began_at:
            replica.responding -= 1
        if ticket.adaptive is not None:
            self._add_sample(ticket, ticket.adaptive, now, typical=typical)
            self._slots.resize(replica)

    def release_unused(self, replica: Replica, now: float) -> None:
        """The slot was taken, or has come back, and no ticket gets it."""
        self._slots.release(replica)
        replica.note_free(now)
        if self.slot_recorder is not None:
            self.slot_recorder.release(replica, 0.0)

    def _add_sample(
        self, ticket: Ticket[WaiterT], adaptive: AdaptiveLimit, now: float, *, typical: bool
    ) -> None:
        """The replica's limit learns from the ticket, unless its caller was slow."""
        begun_at, ticket.adaptive = ticket.granted_at, None
        slow_s, waiting = ticket.body_received_at - begun_at, self._fair_queue.count > 0
        if typical and ticket.is_sample and slow_s <= SLOW_BODY * (now - begun_at):
            adaptive.end(begun_at, ticket.mark, now, waiting=waiting)
        else:
            adaptive.drop(begun_at, ticket.mark, now, waiting=waiting)
