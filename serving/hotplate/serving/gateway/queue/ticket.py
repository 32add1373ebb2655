"""One request's place, the order of places inside one organization, and that organization's flow.

An organization's requests wait by priority, then by deadline, then by arrival.

So that nobody waits for ever behind more urgent ones: of those that are less urgent than the first,
the one that has waited longest, and for longer than `PATIENT_S`, goes in its place after
`OVERTAKEN` of the more urgent, that is every fourth time. The n-th of them has its turn after
`PATIENT_S` and four times n turns of its organization at most, however many urgent ones come.

A sorted list with its first place moving: both ends cost nothing, the middle a search and one
move of pointers (8 kB for a thousand that wait, a tenth of a microsecond). Unlike a heap it knows
how many are ahead of anybody, its own last one, and keeps nothing of those that left.

A flow is what fair queuing calls one: an organization's part in a route's slots and queue
(`fairness.py` says which flow is next). Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.queue.adaptive_limit import AdaptiveLimit, Mark
from hotplate.serving.gateway.queue.replica_slots import Replica

Holder = TypeVar("Holder")

NEVER: Final = math.inf
ENDLESS_S: Final = 60.0
"""Who has no deadline, such as a task, stands as if it had this long, or it would starve."""
PATIENT_S: Final = 5.0
"""Who has waited for less is not considered by how long it has waited."""
OVERTAKEN: Final = 3
"""More urgent ones that go, one after the other, before who has waited longer."""
SPENT_MOST: Final = 64
"""Places before the first one that are kept, at least, before they are dropped together."""
NO_ROUND: Final = 0
NO_ENTRY: Final = 0
EARLIER: Final = -math.inf
NO_MARK: Final = (0.0, 0)

# Where a ticket is; not an enum, because every request is asked several times.
ENDED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2


class Ticket(Generic[Holder]):
    """One request, from its arrival until its replica is done with it."""

    __slots__ = (
        "adaptive",
        "answered_at",
        "arrived_at",
        "charged_s",
        "ends_at",
        "expired",
        "granted_at",
        "hold_s",
        "holder",
        "mark",
        "needs_slot",
        "number",
        "organization",
        "place",
        "priority",
        "replica",
        "round",
        "share",
        "size_bytes",
        "teaches",
        "timeout_s",
        "whole_at",
    )

    def __init__(
        self,
        holder: Holder,
        arrived_at: float,
        timeout_s: float,
        hold_s: float,
        size_bytes: int = 0,
        needs_slot: bool = True,
        organization: str = "",
        priority: int = USUAL_PRIORITY,
    ) -> None:
        self.holder = holder
        self.arrived_at = arrived_at
        self.timeout_s = timeout_s
        """Time until its end, counted from when the route has an open replica."""
        self.hold_s = hold_s
        """Time it may wait for an open replica."""
        self.size_bytes = size_bytes
        self.needs_slot = needs_slot
        """False: it waits for a replica to be ready, not for a slot, and takes none."""
        self.organization = organization
        self.priority = priority
        self.place = ENDED
        self.replica: Replica | None = None
        self.expired = False
        """Its time ran out in its replica."""
        self.teaches = True
        """How long it takes says something of its replica; what fails says nothing."""
        self.adaptive: AdaptiveLimit | None = None
        """Where it counts; None = nowhere."""
        self.mark: Mark = NO_MARK
        self.answered_at = 0.0
        """When its answer began; 0 = it has not."""
        self.whole_at = EARLIER
        """When the last of it came, where that was after its submission."""
        self.share: Share[Holder] | None = None

    # Kept by the queue, from its submission on:
    number: int
    """Counts the tickets of its queue, in the order of their arrival."""
    ends_at: float
    """When its time is over as things are; infinite lets it run on."""
    granted_at: float
    # Kept by the line, from its grant on:
    charged_s: float
    """The slot time that its organization was charged for it."""
    round: int
    """The contest in which it was charged."""


Turn = tuple[int, float, int, Ticket[Holder]]
"""Where a ticket stands: its priority, deadline and number; of equal ones there are none."""
SPENT: Final[Any] = (-1, 0.0, 0, None)


class Order(Generic[Holder]):
    """Tickets by `(priority, ends_at, number)`."""

    def __init__(self) -> None:
        self._turns: list[Turn[Holder]] = []
        self._first = 0
        self._came: dict[int, OrderedDict[Ticket[Holder], None]] = {}
        """All, by priority, in the order in which they came."""
        self._overtaking = 0
        """More urgent ones that went one after the other while one had waited for long."""
        self.count = 0

    def __iter__(self) -> Iterator[Ticket[Holder]]:
        for turn in self._turns[self._first :]:
            yield turn[3]

    @property
    def last(self) -> Ticket[Holder]:
        return self._turns[-1][3]

    def ahead(self, ticket: Ticket[Holder]) -> int:
        """How many go before this one, which may be one that has not joined."""
        return bisect_left(self._turns, turn_of(ticket), lo=self._first) - self._first

    def join(self, ticket: Ticket[Holder]) -> None:
        turn = turn_of(ticket)
        turns = self._turns
        self.count += 1
        came = self._came.get(ticket.priority)
        if came is None:
            came = self._came[ticket.priority] = OrderedDict()
        came[ticket] = None
        if self.count == 1 or _follows(turn, turns[-1]):
            turns.append(turn)
        else:
            insort(turns, turn, lo=self._first)

    def take(self, now: float) -> Ticket[Holder]:
        """Whose turn it is; it leaves."""
        ticket = self._turns[self._first][3]
        if len(self._came) > 1:
            longest = self._longest_behind(ticket)
            if now - longest.arrived_at > PATIENT_S:
                self._overtaking += 1
                if self._overtaking > OVERTAKEN:
                    self._overtaking = 0
                    ticket = longest
        self.leave(ticket)
        return ticket

    def leave(self, ticket: Ticket[Holder]) -> None:
        turns, first = self._turns, self._first
        self.count -= 1
        came = self._came[ticket.priority]
        del came[ticket]
        if not came:
            del self._came[ticket.priority]
        if turns[first][3] is not ticket:
            del turns[bisect_left(turns, turn_of(ticket), lo=first)]
            return
        # What is spent must not keep its ticket; it is not compared, as searches start behind it.
        turns[first] = SPENT
        self._first = first = first + 1
        if first > SPENT_MOST and first * 2 > len(turns):
            del turns[:first]
            self._first = 0

    def _longest_behind(self, first: Ticket[Holder]) -> Ticket[Holder]:
        """Who has waited longest of those that are less urgent than the first; some are."""
        longest = first
        for priority, came in self._came.items():
            if priority > first.priority:
                eldest = next(iter(came))
                if longest is first or eldest.arrived_at < longest.arrived_at:
                    longest = eldest
        return longest

    def sort(self) -> None:
        """Puts all in order anew: their deadlines have changed, which must not happen otherwise."""
        self._turns = sorted(turn_of(ticket) for ticket in self)
        self._first = 0


def turn_of(ticket: Ticket[Holder]) -> Turn[Holder]:
    ends_at = ticket.ends_at
    if ends_at == NEVER:
        ends_at = ticket.arrived_at + ENDLESS_S
    return (ticket.priority, ends_at, ticket.number, ticket)


def _follows(turn: Turn[Holder], other: Turn[Holder]) -> bool:
    """As `turn > other`; compiled, numbers are compared as they are and tuples are not."""
    if turn[0] != other[0]:
        return turn[0] > other[0]
    if turn[1] != other[1]:
        return turn[1] > other[1]
    return turn[2] > other[2]


class Share(Generic[Holder]):
    """One organization's part in a route's slots and queue."""

    __slots__ = (
        "cost_s",
        "entry",
        "name",
        "order",
        "queued_bytes",
        "round",
        "running",
        "tag",
        "weight",
    )

    def __init__(self, name: str, weight: float, cost_s: float) -> None:
        self.name = name
        self.weight = weight
        self.order: Order[Holder] = Order()
        self.queued_bytes = 0
        self.running = 0
        self.tag = 0.0
        self.round = NO_ROUND
        """The contest that its tag is of."""
        self.cost_s = cost_s
        """What a request of it takes on average, as far as is known."""
        self.entry = NO_ENTRY
        """The number of its entry in the line's heap that counts."""
