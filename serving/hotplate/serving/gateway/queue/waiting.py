"""Those that wait: in line for a slot, or in the lobby for a replica. Pure.

Here is what waits, how much of it there is, and when the time of each is over; `fairness.py` says
who is first in line, `overflow.py` who has to leave when there is no room. While no replica is open
a ticket's time is what it may be held for, and it begins anew with the first one that opens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic

from hotplate.serving.gateway.queue.changes import NOTHING, Changes, End
from hotplate.serving.gateway.queue.deadlines import Deadlines
from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.overflow import Room
from hotplate.serving.gateway.queue.replica_slots import Slots
from hotplate.serving.gateway.queue.ticket import ENDED, WAITING, Holder, Ticket


class Waiting(Generic[Holder]):
    """A route's tickets that no replica has yet."""

    def __init__(
        self,
        slots: Slots,
        line: FairLine[Holder],
        room: Room[Holder],
        deadlines: Deadlines[Holder],
        *,
        now: float,
    ) -> None:
        self.lobby: OrderedDict[Ticket[Holder], None] = OrderedDict()
        """Those that wait for a replica but need no slot, first come, first served."""
        self.size_bytes = 0
        """Of all that wait."""
        self.changed_at = now
        """When the route last got its first open replica, or lost its last one."""
        self.held_since: float | None = None
        """Since when somebody has waited for the first replica; None = nobody does."""
        self.cold_start_s = 0.0
        """How long the newest wait for a first replica took; 0 = there was none yet."""
        self._slots = slots
        self._line = line
        self._room = room
        self._deadlines = deadlines

    def __iter__(self) -> Iterator[Ticket[Holder]]:
        """Everybody, in the order in which they would go if nobody came."""
        yield from list(self.lobby)
        yield from self._line

    # Coming

    def join(self, ticket: Ticket[Holder], now: float) -> None:
        """The ticket waits; that there is room for it is known."""
        ticket.place = WAITING
        self.size_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self._line.join(ticket)
            if self._room.watched:
                self._room.grew(ticket.organization)
        else:
            self.lobby[ticket] = None
        self._deadlines.add(ticket)
        if self.held_since is None and not self._slots.ready:
            self.held_since = now

    def put_back(self, ticket: Ticket[Holder]) -> None:
        """Its replica did not serve it: it goes before all others."""
        ticket.replica = None
        ticket.place = WAITING
        self.size_bytes += ticket.size_bytes
        if ticket.needs_slot:
            self._line.put_back(ticket)
        else:
            self.lobby[ticket] = None
            self.lobby.move_to_end(ticket, last=False)
        ticket.ends_at = self._ends_at(ticket)
        self._deadlines.add(ticket)

    def make_room(self, ticket: Ticket[Holder]) -> tuple[bool, list[tuple[Ticket[Holder], End]]]:
        """Whether the ticket may wait, and who had to go for it."""
        line, room = self._line, self._room
        pushed_out: list[tuple[Ticket[Holder], End]] = []
        while line.count >= room.limit or self.size_bytes + ticket.size_bytes > room.limit_bytes:
            other = room.to_push_out(ticket)
            if other is None:
                return False, pushed_out
            self.cancel(other)
            pushed_out.append((other, End.PUSHED_OUT))
        return True, pushed_out

    def grow(self, ticket: Ticket[Holder], size_bytes: int) -> Changes[Holder]:
        """More of a waiting ticket's body came. Refused, it has lost its place."""
        if self.size_bytes + size_bytes > self._room.limit_bytes:
            self.cancel(ticket)
            return Changes((), ((ticket, End.SHARE_FULL),))
        self.size_bytes += size_bytes
        if ticket.needs_slot:
            self._line.grow(ticket, size_bytes)
        else:
            ticket.size_bytes += size_bytes
        return NOTHING

    # Leaving

    def cancel(self, ticket: Ticket[Holder]) -> None:
        """A waiting ticket gives up its place."""
        if ticket.needs_slot:
            self._line.leave(ticket)
        else:
            del self.lobby[ticket]
        ticket.place = ENDED
        self.size_bytes -= ticket.size_bytes
        if not self._line.count and not self.lobby:
            self.held_since = None

    def clear(self) -> Sequence[Ticket[Holder]]:
        """Cancels everything that waits, and returns it."""
        waiting = list(self)
        for ticket in waiting:
            self.cancel(ticket)
        return waiting

    # Time

    def restart_clocks(self, now: float) -> None:
        """The first replica is open, or the last one no longer is."""
        self.changed_at = now
        ready, waiting = self._slots.ready, list(self)
        for ticket in waiting:
            ticket.ends_at = self._ends_at(ticket)
        self._line.sort()
        self._deadlines.replace(waiting)
        if self.held_since is not None and ready:
            self.cold_start_s = now - self.held_since
        self.held_since = now if waiting and not ready else None

    def _ends_at(self, ticket: Ticket[Holder]) -> float:
        """When its time is over as things are."""
        since = max(ticket.arrived_at, self.changed_at)
        return since + (ticket.timeout_s if self._slots.ready else ticket.hold_s)
