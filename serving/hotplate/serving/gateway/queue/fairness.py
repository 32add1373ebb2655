"""Whose turn it is: weighted fair between organizations, by the slot time that they use. Pure.

Start-time fair queuing. Every organization has a tag, the slot time it has used divided by its
weight; the one with the least tag goes next. A request is charged as it gets its slot, with what
its organization's requests take on average, and what that was wrong by is settled as it ends, so
long requests buy no more slot time than short ones. The route's own tag, `_virtual`, follows the
tag of whoever went last:

* An organization that comes back, or is new, starts from there, less one request's time: nothing
  is saved up while nobody waits, and nothing is lost by being in service just as a slot is free.
* Where a slot finds nobody waiting there is no contest: all begin the next one alike (`_round`),
  so nobody pays later for slots that nobody else wanted.

Inside one organization an `Order` says who is first. Tickets that a replica gave back precede all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Generic

from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import NO_ENTRY, NO_ROUND, Holder, Share, Ticket

USUAL_COST_S = 1.0
"""Charged while nothing is known; settled later, so that any figure would do."""
COST_WEIGHT = 0.1
"""Weight of an organization's newest request in what its next is charged."""
REMEMBERED = 1000
"""Organizations without a request that are remembered at most: callers name them."""
STALE_MOST = 64
"""Entries of no use that a heap keeps at least."""
COMPARED = 32
"""Organizations that an estimate looks at one by one; the others count one request each."""


class FairLine(Generic[Holder]):
    """Everybody who waits for a slot, and what organizations have used."""

    def __init__(self, service: ServiceTime) -> None:
        self.count = 0
        """Those that wait. Counts are attributes, not `len`: they are read with every request."""
        self.contested = False
        """Whether several organizations are known; else there is nothing to charge."""
        self._service = service
        self._weights: Mapping[str, float] = {}
        self._returned: OrderedDict[Ticket[Holder], None] = OrderedDict()
        self._shares: dict[str, Share[Holder]] = {}
        self._waiting: OrderedDict[Share[Holder], None] = OrderedDict()
        """Shares with anybody in their order."""
        self._sole: Share[Holder] | None = None
        """The only one of them; None = there are none, or several."""
        self.waiting_weight = 0.0
        """Of those, the weights together."""
        self._next: list[tuple[float, int, Share[Holder]]] = []
        """Those by tag, kept up while there are several. Of a share's entries the one with its
        number counts, and may be too early but not too late."""
        self._entries = 0
        self._virtual = 0.0
        self._round = 1
        self._sweep_at = REMEMBERED

    def __iter__(self) -> Iterator[Ticket[Holder]]:
        """All, in the order in which they would go if nobody came."""
        yield from list(self._returned)
        heap = [
            (share.tag, number, share, iter(share.order))
            for number, share in enumerate(self._waiting)
        ]
        heapify(heap)
        number = len(heap)
        while heap:
            tag, _, share, tickets = heap[0]
            ticket = next(tickets, None)
            if ticket is None:
                heappop(heap)
                continue
            number += 1
            heapreplace(heap, (tag + share.cost_s / share.weight, number, share, tickets))
            yield ticket

    @property
    def shares(self) -> Iterable[Share[Holder]]:
        """Of organizations with a request, waiting or running."""
        return (s for s in self._shares.values() if s.running or s.order.count)

    @property
    def waiting(self) -> Collection[Share[Holder]]:
        """Of organizations with a request that waits."""
        return self._waiting.keys()

    @property
    def remembered(self) -> int:
        """Organizations that are known, also without a request."""
        return len(self._shares)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """The weights of organizations from now on; 1 for those not named."""
        self._weights = weights
        for share in self._shares.values():
            share.weight = weights.get(share.name, 1.0)
        self.waiting_weight = sum(share.weight for share in self._waiting)

    # Who waits

    def join(self, ticket: Ticket[Holder]) -> None:
        share = self._shares.get(ticket.organization) or self.share_of(ticket.organization)
        ticket.share = share
        if not share.order.count:
            self._begin(share)
        share.order.join(ticket)
        share.queued_bytes += ticket.size_bytes
        self.count += 1

    def put_back(self, ticket: Ticket[Holder]) -> None:
        """It had its turn and got nothing of it: it goes before all others."""
        self._returned[ticket] = None
        self._returned.move_to_end(ticket, last=False)
        self.count += 1

    def take(self, now: float) -> Ticket[Holder]:
        """Whose turn it is; it leaves."""
        if self._returned:
            self.count -= 1
            return self._returned.popitem(last=False)[0]
        share = self._sole or self._least()
        ticket = share.order.take(now)
        self._left(share, ticket)
        return ticket

    def leave(self, ticket: Ticket[Holder]) -> None:
        if ticket in self._returned:
            del self._returned[ticket]
            self.count -= 1
            return
        share = ticket.share
        assert share is not None, "who waits has a share"
        share.order.leave(ticket)
        self._left(share, ticket)

    def grow(self, ticket: Ticket[Holder], size_bytes: int) -> None:
        ticket.size_bytes += size_bytes
        if ticket.share is not None and ticket not in self._returned:
            ticket.share.queued_bytes += size_bytes

    def sort(self) -> None:
        """Puts everybody in order anew, after deadlines have changed."""
        for share in self._waiting:
            share.order.sort()

    def ahead(self, ticket: Ticket[Holder]) -> float:
        """At least so many requests get their slots before this one, which is about to join."""
        share = self.share_of(ticket.organization)
        own = share.order.ahead(ticket)
        ahead = float(own + len(self._returned))
        if own and len(self._waiting) > 1:
            turns = own / share.weight
            for other in islice(self._waiting, COMPARED):
                if other is not share:
                    ahead += min(other.order.count, turns * other.weight)
            ahead += max(0, len(self._waiting) - COMPARED) * min(1.0, turns)
        return ahead

    # Who has used how much

    def charge(self, ticket: Ticket[Holder]) -> None:
        """It gets a slot."""
        share = ticket.share
        if share is None:
            organization = ticket.organization
            share = self._shares.get(organization) or self.share_of(organization)
            ticket.share = share
        share.running += 1
        if not self.contested:
            ticket.round = NO_ROUND
            return
        if not share.order.count:
            self._bring_up(share)
        if share.tag > self._virtual:
            self._virtual = share.tag
        ticket.round = self._round
        ticket.charged_s = share.cost_s
        share.tag += share.cost_s / share.weight

    def settle(self, ticket: Ticket[Holder], slot_s: float, *, typical: bool) -> None:
        """It had the slot for this time; `typical` says whether its like may be expected to."""
        share = ticket.share
        assert share is not None, "who was charged has a share"
        share.running -= 1
        if not self.contested:
            return
        if ticket.round == self._round:
            off_s = slot_s - ticket.charged_s
            share.tag += off_s / share.weight
            if off_s < 0.0 and share.entry:
                self._enter(share)
        if typical:
            share.cost_s += (slot_s - share.cost_s) * COST_WEIGHT

    def calm(self) -> None:
        """A slot is free and nobody wants it."""
        self._round += 1

    def share_of(self, organization: str) -> Share[Holder]:
        share = self._shares.get(organization)
        if share is None:
            if len(self._shares) >= self._sweep_at:
                self._sweep()
            usual_s = self._service.mean_s or USUAL_COST_S
            for alone in self._shares.values() if len(self._shares) == 1 else ():
                alone.cost_s = usual_s
            share = Share(organization, self._weights.get(organization, 1.0), usual_s)
            self._shares[organization] = share
            self.contested = len(self._shares) > 1
        return share

    # Inside

    def _begin(self, share: Share[Holder]) -> None:
        self._bring_up(share)
        if self._sole is not None:
            self._enter(self._sole)
        self._waiting[share] = None
        self.waiting_weight += share.weight
        if len(self._waiting) > 1:
            self._sole = None
            self._enter(share)
        else:
            self._sole = share

    def _left(self, share: Share[Holder], ticket: Ticket[Holder]) -> None:
        share.queued_bytes -= ticket.size_bytes
        self.count -= 1
        if not share.order.count:
            del self._waiting[share]
            share.entry = NO_ENTRY
            self.waiting_weight = self.waiting_weight - share.weight if self._waiting else 0.0
            self._sole = next(iter(self._waiting)) if len(self._waiting) == 1 else None

    def _bring_up(self, share: Share[Holder]) -> None:
        """An organization that nobody waits for keeps no more than one request's claim."""
        if share.round != self._round:
            share.round = self._round
            share.tag = self._virtual
        else:
            share.tag = max(share.tag, self._virtual - share.cost_s / share.weight)

    def _enter(self, share: Share[Holder]) -> None:
        self._entries += 1
        share.entry = self._entries
        heappush(self._next, (share.tag, self._entries, share))
        if len(self._next) > 2 * len(self._waiting) + STALE_MOST:
            self._next = [entry for entry in self._next if entry[1] == entry[2].entry]
            heapify(self._next)

    def _least(self) -> Share[Holder]:
        heap = self._next
        while True:
            tag, entry, share = heap[0]
            if entry != share.entry:
                heappop(heap)
            elif tag < share.tag:
                self._entries += 1
                share.entry = self._entries
                heapreplace(heap, (share.tag, self._entries, share))
            else:
                return share

    def _sweep(self) -> None:
        """Forgets organizations without a request: those that owe nothing, then who owes least."""
        idle = [
            share for share in self._shares.values() if not (share.running or share.order.count)
        ]
        idle.sort(key=lambda share: share.tag if share.round == self._round else -math.inf)
        for share in idle[: len(idle) - REMEMBERED // 2]:
            del self._shares[share.name]
        self._sweep_at = len(self._shares) + REMEMBERED // 2
