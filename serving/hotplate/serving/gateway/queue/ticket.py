"""A ticket is one request's place in the queue; a flow is the tickets of one organization.

A flow's tickets wait by priority, then by deadline, then by arrival.

No ticket starves behind more urgent ones. After `OVERTAKEN_MOST` more urgent tickets in a row the
next one to go is the less urgent ticket that has waited longest, if that is for more than
`STARVING_S`. So the n-th such ticket goes after `STARVING_S` and four times n turns of its flow at
most, however many urgent ones come.

`FlowQueue` is a sorted list whose first position moves: both ends cost nothing, and the middle
costs a search and one move of pointers (8 kB for a thousand tickets, a tenth of a microsecond).
Unlike a heap it knows how many tickets are ahead of another one and which is last, and it keeps no
ticket that has gone.

`fairness.py` says which flow is next. Pure.
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
from hotplate.serving.gateway.telemetry.version_answers import NO_KIND

WaiterT = TypeVar("WaiterT")

NEVER: Final = math.inf
NO_DEADLINE_S: Final = 60.0
"""A ticket without a deadline, such as a task's, is sorted as if it had this long, so that it does
not starve."""
STARVING_S: Final = 5.0
"""A less urgent ticket that has waited for longer than this gets every fourth turn."""
OVERTAKEN_MOST: Final = 3
"""More urgent tickets that go in a row before a less urgent one that has waited for long."""
GONE_LEAST: Final = 64
"""Entries of tickets that have gone are dropped together, and not before there are this many."""
NO_CONTEST: Final = 0
NO_ENTRY: Final = 0
EARLIER: Final = -math.inf
NO_MARK: Final = (0.0, 0)

# A ticket's states; not an enum, because they are compared several times per request.
ENDED: Final = 0
WAITING: Final = 1
RUNNING: Final = 2


class Ticket(Generic[WaiterT]):
    """One request, from its arrival until its replica is done with it."""

    __slots__ = (
        "adaptive",
        "arrived_at",
        "body_received_at",
        "charged_s",
        "contest",
        "ends_at",
        "expired",
        "flow",
        "granted_at",
        "hold_s",
        "is_sample",
        "mark",
        "needs_slot",
        "number",
        "organization",
        "priority",
        "replica",
        "response_began_at",
        "size_bytes",
        "state",
        "timeout_s",
        "waiter",
    )

    def __init__(
        self,
        waiter: WaiterT,
        arrived_at: float,
        timeout_s: float,
        hold_s: float,
        size_bytes: int = 0,
        needs_slot: bool = True,
        organization: str = "",
        priority: int = USUAL_PRIORITY,
    ) -> None:
        self.waiter = waiter
        self.arrived_at = arrived_at
        self.timeout_s = timeout_s
        """Time until its response must begin, counted from when the route has an open replica."""
        self.hold_s = hold_s
        """Time it may wait for an open replica."""
        self.size_bytes = size_bytes
        self.needs_slot = needs_slot
        """False: it waits for a replica to be ready but needs no slot, and takes none."""
        self.organization = organization
        self.priority = priority
        self.state = ENDED
        self.replica: Replica | None = None
        self.expired = False
        """Its time ran out while its replica had it."""
        self.is_sample = True
        """Whether its duration says something about its replica; that of a failure does not."""
        self.adaptive: AdaptiveLimit | None = None
        """The limit that counts it while it runs; None = there is none."""
        self.mark: Mark = NO_MARK
        self.response_began_at = 0.0
        """When its response began; 0 = it has not."""
        self.body_received_at = EARLIER
        """When its body was complete, where that was after its submission."""
        self.flow: Flow[WaiterT] | None = None

    def count_answer(self, kind: int) -> None:
        """Its replica has answered in this way (`version_answers.py`). What took no slot is about
        the replica itself, and is not counted."""
        counts = None if self.replica is None else self.replica.answers
        if counts is not None and self.needs_slot and kind != NO_KIND:
            counts[kind] += 1

    # Set by `SlotQueue`, from its submission on:
    number: int
    """Counts the tickets of its queue, in the order of their arrival."""
    ends_at: float
    """When its time is over; infinite = it has no time limit, or no longer has one."""
    granted_at: float
    # Set by `FairQueue`, from its grant on:
    charged_s: float
    """The slot time that its organization was charged for it."""
    contest: int
    """The contest in which it was charged."""


SortKey = tuple[int, float, int, Ticket[WaiterT]]
"""A ticket with its priority, deadline and number; no two are equal."""
GONE: Final[Any] = (-1, 0.0, 0, None)


class FlowQueue(Generic[WaiterT]):
    """The waiting tickets of one flow, by `(priority, ends_at, number)`."""

    def __init__(self) -> None:
        self._sorted: list[SortKey[WaiterT]] = []
        self._first = 0
        self._arrivals: dict[int, OrderedDict[Ticket[WaiterT], None]] = {}
        """All tickets, by priority, in the order in which they came."""
        self._overtaking = 0
        """More urgent tickets that went in a row while a less urgent one had waited for long."""
        self.count = 0

    def __iter__(self) -> Iterator[Ticket[WaiterT]]:
        for key in self._sorted[self._first :]:
            yield key[3]

    @property
    def last(self) -> Ticket[WaiterT]:
        return self._sorted[-1][3]

    def ahead(self, ticket: Ticket[WaiterT]) -> int:
        """How many go before the ticket, which need not have joined."""
        return bisect_left(self._sorted, sort_key(ticket), lo=self._first) - self._first

    def join(self, ticket: Ticket[WaiterT]) -> None:
        key = sort_key(ticket)
        keys = self._sorted
        self.count += 1
        arrivals = self._arrivals.get(ticket.priority)
        if arrivals is None:
            arrivals = self._arrivals[ticket.priority] = OrderedDict()
        arrivals[ticket] = None
        if self.count == 1 or _follows(key, keys[-1]):
            keys.append(key)
        else:
            insort(keys, key, lo=self._first)

    def take(self, now: float) -> Ticket[WaiterT]:
        """Removes and returns the ticket that is next."""
        ticket = self._sorted[self._first][3]
        if len(self._arrivals) > 1:
            longest = self._longest_waiting_behind(ticket)
            if now - longest.arrived_at > STARVING_S:
                self._overtaking += 1
                if self._overtaking > OVERTAKEN_MOST:
                    self._overtaking = 0
                    ticket = longest
        self.leave(ticket)
        return ticket

    def leave(self, ticket: Ticket[WaiterT]) -> None:
        keys, first = self._sorted, self._first
        self.count -= 1
        arrivals = self._arrivals[ticket.priority]
        del arrivals[ticket]
        if not arrivals:
            del self._arrivals[ticket.priority]
        if keys[first][3] is not ticket:
            del keys[bisect_left(keys, sort_key(ticket), lo=first)]
            return
        # The entry must not keep its ticket alive. Searches start behind it, so it is not compared.
        keys[first] = GONE
        self._first = first = first + 1
        if first > GONE_LEAST and first * 2 > len(keys):
            del keys[:first]
            self._first = 0

    def _longest_waiting_behind(self, first: Ticket[WaiterT]) -> Ticket[WaiterT]:
        """The ticket that has waited longest of those less urgent than `first`; else `first`."""
        longest = first
        for priority, arrivals in self._arrivals.items():
            if priority > first.priority:
                oldest = next(iter(arrivals))
                if longest is first or oldest.arrived_at < longest.arrived_at:
                    longest = oldest
        return longest

    def sort(self) -> None:
        """Sorts all tickets again. Deadlines must not change without a call of this."""
        self._sorted = sorted(sort_key(ticket) for ticket in self)
        self._first = 0


def sort_key(ticket: Ticket[WaiterT]) -> SortKey[WaiterT]:
    ends_at = ticket.ends_at
    if ends_at == NEVER:
        ends_at = ticket.arrived_at + NO_DEADLINE_S
    return (ticket.priority, ends_at, ticket.number, ticket)


def _follows(key: SortKey[WaiterT], other: SortKey[WaiterT]) -> bool:
    """`key > other`, without a comparison of tuples, which is slow in compiled code."""
    if key[0] != other[0]:
        return key[0] > other[0]
    if key[1] != other[1]:
        return key[1] > other[1]
    return key[2] > other[2]


class Flow(Generic[WaiterT]):
    """One organization's requests of a route, waiting and running, and the slot time they used."""

    __slots__ = (
        "contest",
        "cost_s",
        "entry",
        "name",
        "queue",
        "queued_bytes",
        "running",
        "tag",
        "weight",
    )

    def __init__(self, name: str, weight: float, cost_s: float) -> None:
        self.name = name
        self.weight = weight
        self.queue: FlowQueue[WaiterT] = FlowQueue()
        self.queued_bytes = 0
        self.running = 0
        self.tag = 0.0
        self.contest = NO_CONTEST
        """The contest that its tag belongs to (`FairQueue`)."""
        self.cost_s = cost_s
        """The mean slot time of its requests, as far as it is known."""
        self.entry = NO_ENTRY
        """The number of its valid entry in the heap of `FairQueue`."""
