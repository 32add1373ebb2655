"""Those that a replica has, with a slot of it or without. Pure.

A ticket's grant and its end are written down here where somebody counts: with its organization
(`fairness.py`), in the ledger, and in what its replica learns from it (`adaptive_limit.py`).
"""

from __future__ import annotations

from typing import Final, Generic

from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit
from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.replica_slots import Ledger, Replica, Slots
from hotplate.serving.gateway.queue.ticket import ENDED, RUNNING, Holder, Ticket

SLOW_BODY: Final = 0.1
"""A body that came for longer than this part of a request's time says nothing of its replica."""


class Granted(Generic[Holder]):
    """A route's tickets that run."""

    def __init__(self, slots: Slots, line: FairLine[Holder]) -> None:
        self.count = 0
        self.in_flight = 0
        """Of these, those that have a slot."""
        self.ledger: Ledger | None = None
        """Writes down which slots are taken."""
        self._slots = slots
        self._line = line

    def let_past(self, ticket: Ticket[Holder], replica: Replica, now: float) -> None:
        """The ticket goes to the replica without a slot of it."""
        ticket.place = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self.count += 1

    def let_out(self, ticket: Ticket[Holder]) -> None:
        """One that went without a slot has ended."""
        ticket.place = ENDED
        self.count -= 1

    def grant(self, ticket: Ticket[Holder], replica: Replica, now: float) -> None:
        """The ticket has got a slot of the replica."""
        ticket.place = RUNNING
        ticket.replica = replica
        ticket.granted_at = now
        self.count += 1
        self.in_flight += 1
        self._line.charge(ticket)
        adaptive = replica.adaptive
        if adaptive is not None:
            ticket.adaptive, ticket.mark = adaptive, adaptive.begin(now)
        if self.ledger is not None:
            self.ledger.take(replica, now)

    def free(self, ticket: Ticket[Holder], now: float, *, typical: bool) -> None:
        """The ticket has ended, and its slot, if it had one, comes back."""
        replica = ticket.replica
        assert replica is not None, "a running ticket has a replica"
        if ticket.needs_slot:
            self._slots.give(replica)
            self.end(ticket, replica, now, typical=typical)
        else:
            self.let_out(ticket)

    def end(self, ticket: Ticket[Holder], replica: Replica, now: float, *, typical: bool) -> None:
        """One that had a slot has ended; the slot goes to another, or has come back."""
        ticket.place = ENDED
        self.count -= 1
        self.in_flight -= 1
        slot_s = now - ticket.granted_at
        if self.ledger is not None:
            self.ledger.give(replica, slot_s if typical else 0.0)
        self._line.settle(ticket, slot_s, typical=typical)
        if ticket.answered_at:
            replica.answering -= 1
        if ticket.adaptive is not None:
            self._teach(ticket, ticket.adaptive, now, typical=typical)
            self._slots.resize(replica)

    def return_slot(self, replica: Replica) -> None:
        """The slot was taken, or has come back, and nobody gets it."""
        self._slots.give(replica)
        if self.ledger is not None:
            self.ledger.give(replica, 0.0)

    def _teach(
        self, ticket: Ticket[Holder], adaptive: AdaptiveLimit, now: float, *, typical: bool
    ) -> None:
        """Its replica's limit learns from the ticket, unless a slow caller took its time."""
        begun_at, ticket.adaptive = ticket.granted_at, None
        slow_s, waiting = ticket.whole_at - begun_at, self._line.count > 0
        if typical and ticket.teaches and slow_s <= SLOW_BODY * (now - begun_at):
            adaptive.end(begun_at, ticket.mark, now, waiting=waiting)
        else:
            adaptive.drop(begun_at, ticket.mark, now, waiting=waiting)
