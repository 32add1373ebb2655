"""The tickets that wait: most for a slot, some only for a replica that is ready. Pure.

This file knows how much waits and when the time of each ticket is over; `fairness.py` says which
ticket is next for a slot, `overflow.py` which one has to leave a full queue. While no replica is
open a ticket may wait for its `hold_s`; when the first one opens, its `timeout_s` begins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic

from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.deadlines import Deadlines
from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.overflow import Overflow
from hotplate.serving.gateway.queue.replica_slots import Slots
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Ticket, WaiterT


class Waiting(Generic[WaiterT]):
    """The tickets of a route that no replica has yet."""

    def __init__(
        self,
        slots: Slots,
        fair_queue: FairQueue[WaiterT],
        overflow: Overflow[WaiterT],
        deadlines: Deadlines[WaiterT],
        *,
        now: float,
    ) -> None:
        self.slotless: OrderedDict[Ticket[WaiterT], None] = OrderedDict()
        """Tickets that wait for a replica but need no slot, first come, first served."""
        self.size_bytes = 0
        """Bytes of all bodies that wait."""
        self.readiness_changed_at = now
        """When the route last got its first open replica, or lost its last one."""
        self.cold_start_began_at: float | None = None
        """Since when a ticket has waited for the first replica; None = no ticket does."""
        self.cold_start_s = 0.0
        """How long the latest wait for a first replica took; 0 = there was none yet."""
        self._slots = slots
        self._fair_queue = fair_queue
        self._overflow = overflow
        self._deadlines = deadlines

    def __iter__(self) -> Iterator[Ticket[WaiterT]]:
        """All tickets, in the order in which they would go if no other came."""
        yield from list(self.slotless)
        yield from self._fair_queue

    # Tickets that come

    def join(self, ticket: Ticket[WaiterT], now: float) -> None:
        """The ticket waits; the caller has checked that the queue is not full."""
        ticket.state = WAITING
        self.size_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self._fair_queue.join(ticket)
            if self._overflow.is_tracking:
                self._overflow.note_growth(ticket.organization)
        else:
            self.slotless[ticket] = None
        self._deadlines.add(ticket)
        if self.cold_start_began_at is None and not self._slots.ready:
            self.cold_start_began_at = now

    def requeue(self, ticket: Ticket[WaiterT]) -> None:
        """The ticket's replica did not serve it: it goes before all others."""
        ticket.replica = None
        ticket.state = WAITING
        self.size_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self._fair_queue.requeue(ticket)
        else:
            self.slotless[ticket] = None
            self.slotless.move_to_end(ticket, last=False)
        ticket.ends_at = self._ends_at(ticket)
        self._deadlines.add(ticket)

    def make_room(self, ticket: Ticket[WaiterT]) -> tuple[bool, list[tuple[Ticket[WaiterT], End]]]:
        """Whether the ticket may wait, and the tickets that were pushed out for it."""
        fair_queue, overflow = self._fair_queue, self._overflow
        pushed_out: list[tuple[Ticket[WaiterT], End]] = []
        while (
            fair_queue.count >= overflow.limit
            or self.size_bytes + ticket.size_bytes > overflow.limit_bytes
        ):
            other = overflow.to_push_out(ticket)
            if other is None:
                return False, pushed_out
            self.cancel(other)
            pushed_out.append((other, End.PUSHED_OUT))
        return True, pushed_out

    def grow(self, ticket: Ticket[WaiterT], size_bytes: int) -> Changes[WaiterT]:
        """More of a waiting ticket's body came. If it does not fit, the ticket is refused."""
        if self.size_bytes + size_bytes > self._overflow.limit_bytes:
            self.cancel(ticket)
            return Changes((), ((ticket, End.SHARE_FULL),))
        self.size_bytes += size_bytes
        if ticket.needs_slot:
            self._fair_queue.grow(ticket, size_bytes)
        else:
            ticket.size_bytes += size_bytes
        return NOTHING

    # Tickets that leave

    def cancel(self, ticket: Ticket[WaiterT]) -> None:
        """A waiting ticket leaves the queue."""
        if ticket.needs_slot:
            self._fair_queue.leave(ticket)
        else:
            del self.slotless[ticket]
        ticket.state = ENDED
        self.size_bytes -= ticket.size_bytes
        if not self._fair_queue.count and not self.slotless:
            self.cold_start_began_at = None

    def clear(self) -> Sequence[Ticket[WaiterT]]:
        """Cancels every waiting ticket, and returns them."""
        waiting = list(self)
        for ticket in waiting:
            self.cancel(ticket)
        return waiting

    # Time

    def restart_clocks(self, now: float) -> None:
        """The first replica is open, or the last one no longer is."""
        self.readiness_changed_at = now
        ready, waiting = self._slots.ready, list(self)
        for ticket in waiting:
            ticket.ends_at = self._ends_at(ticket)
        self._fair_queue.sort()
        self._deadlines.replace(waiting)
        if self.cold_start_began_at is not None and ready:
            self.cold_start_s = now - self.cold_start_began_at
        self.cold_start_began_at = now if waiting and not ready else None

    def _ends_at(self, ticket: Ticket[WaiterT]) -> float:
        """When the ticket's time is over, with or without an open replica as there is now."""
        since = max(ticket.arrived_at, self.readiness_changed_at)
        return since + (ticket.timeout_s if self._slots.ready else ticket.hold_s)
