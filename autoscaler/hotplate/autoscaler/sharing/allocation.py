"""Who gets how many replicas when more are asked for than there may be; pure.

    quotas = {"a": Quota(Amounts(4, math.inf, math.inf, math.inf)), "b": Quota(weight=2)}
    asks = [
        Ask("a/chat", "a", Amounts(gpus=1, replicas=1), wanted=6),
        Ask("b/draw", "b", Amounts(gpus=1, replicas=1), wanted=6),
    ]
    granted = share(asks, quotas, capacity=Amounts(6, 64, 2**38, math.inf))
    granted["a/chat"]  # Grant(replicas=2, reason="2 of 6 granted: …")

A quota bounds all replicas of an organization, the capacity those of all. Within them the lower
priority goes first, and inside one priority replicas are given out one by one to the organization
that has least for its weight (max-min), and there to the service that has least. Beside others a
service is at most as urgent as its organization's quota says: else whoever writes the lowest number
would have all. A replica counts as its share of the scarcest resource that it needs: of the GPUs
where these are scarce, else of what is asked for most beyond what there is.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar

from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts, over, said, total

Key = TypeVar("Key")

_Turn = tuple[int, bool, float, int, bool, int]
"""Of a service inside its organization: the lowest is the next; its number at the end."""

USUAL_PRIORITY = 3
"""Of 0 (first) to 7 (last), as requests have them (RFC 9218)."""


@dataclass(frozen=True)
class Quota:
    """What an organization may have in all, and what it counts for where it is not alone."""

    limit: Amounts = UNLIMITED
    standby: float = float("inf")
    """Instances held ready and empty for it."""
    weight: float = 1.0
    """Above 0: one of weight 2 gets twice as much as one of weight 1 that wants as much."""
    priority: int = USUAL_PRIORITY
    """The most urgent that its services are beside other organizations'."""


NO_QUOTA = Quota()


@dataclass(frozen=True)
class AllocationRequest(Generic[Key]):
    """What one service asks for."""

    key: Key
    organization: str
    each: Amounts
    """What one replica takes."""
    wanted: int
    kept: int = 0
    """How many of them are idle and only kept for demand to come back: they are granted last."""
    held: int = 0
    """How many there are: between equals, who has something keeps it. A new revision takes over
    what the one before it has."""
    replacing: bool = False
    """A new revision: between equals that have nothing, it goes first."""
    priority: int = USUAL_PRIORITY
    """Inside its organization; beside others no more urgent than the quota says."""


@dataclass(frozen=True)
class Allocation:
    """How many of the replicas that a service asks for it gets, and why not more."""

    replicas: int
    reason: str = ""
    """Empty where it gets them all."""
    cause: Literal["", "quota", "capacity"] = ""


def allocate(
    asks: Sequence[AllocationRequest[Key]],
    quotas: Mapping[str, Quota],
    capacity: Amounts = UNLIMITED,
) -> dict[Key, Allocation]:
    """What each service gets. No sum over an organization is ever above its quota.

    An organization without a quota is not limited and has weight 1. A replica that is larger than
    the whole capacity is left to whoever places it, and counts for nothing here: the others need
    not wait for it. Same arguments, same answer; ties go to who comes first in `asks`.
    """
    return _Sharing(asks, quotas, capacity).run()


class _Sharing(Generic[Key]):
    def __init__(
        self, asks: Sequence[AllocationRequest[Key]], quotas: Mapping[str, Quota], capacity: Amounts
    ) -> None:
        self._asks = asks
        self._quotas = quotas
        self._capacity = capacity
        self._classes = [max(ask.priority, self._quota(ask.organization).priority) for ask in asks]
        """Their priorities beside other organizations."""
        self._fits = [ask.each.within(capacity) for ask in asks]
        self._asked = total(
            (ask.each, ask.wanted) for ask, fits in zip(asks, self._fits, strict=True) if fits
        )
        by_organization: dict[str, list[tuple[Amounts, float]]] = defaultdict(list)
        for ask in asks:
            by_organization[ask.organization].append((ask.each, ask.wanted))
        self._asked_by = {name: total(theirs) for name, theirs in by_organization.items()}
        self._sizes: list[float] = []
        """A replica as a share of the scarcest that it needs; 0 = all that it needs suffices."""
        self._sizes_inside: list[float] = []
        """The same among services of one organization, whose quota may be scarcer."""
        self._granted = [0] * len(asks)
        self._used = Amounts()
        self._used_by = dict.fromkeys(by_organization, Amounts())
        self._short: dict[int, tuple[Literal["quota", "capacity"], int]] = {}
        """By ask that gets less: what binds it, and by which resource."""
        self._whys: dict[tuple[str, str, int, int, bool], str] = {}
        self._no_room: dict[Amounts, int] = {}
        """Replicas that the capacity has no room for any more, and by which resource."""

    def run(self) -> dict[Key, Allocation]:
        if self._nobody_loses():
            return {ask.key: Allocation(ask.wanted) for ask in self._asks}
        self._measure()
        order = sorted(range(len(self._asks)), key=self._classes.__getitem__)
        for _, group in groupby(order, key=self._classes.__getitem__):
            self._share_class(list(group))
        return {ask.key: self._grant(i) for i, ask in enumerate(self._asks)}

    def _nobody_loses(self) -> bool:
        return self._asked.within(self._capacity) and all(
            asked.within(self._quota(name).limit) for name, asked in self._asked_by.items()
        )

    def _measure(self) -> None:
        sizes: dict[Amounts, float] = {}
        for ask in self._asks:
            each, name = ask.each, ask.organization
            size = sizes.get(each)
            if size is None:
                size = sizes[each] = _scarcest(each, self._asked, self._capacity)
            limit, inside = self._quota(name).limit, size
            if limit is not UNLIMITED:
                inside = _scarcest(each, self._asked_by[name], limit) or size
            self._sizes.append(size)
            self._sizes_inside.append(inside)

    def _share_class(self, members: Sequence[int]) -> None:
        """Those of one priority: first as many as their demand needs, then what is only kept."""
        has = dict.fromkeys((self._asks[i].organization for i in members), 0.0)
        needed = dict.fromkeys(has, 0.0)
        for i in members:
            needed[self._asks[i].organization] += self._needs(i)
        self._fill(members, has, needed)
        self._fill(members, has, dict.fromkeys(has, math.inf))

    def _fill(self, members: Sequence[int], has: dict[str, float], rooms: dict[str, float]) -> None:
        """One replica after the other to the lowest, until each has what it wants or cannot; an
        organization gets no more than its `rooms`."""
        queues = self._queues(members)
        turns = [self._lowest(name, queue, has) for name, queue in queues.items() if rooms[name]]
        heapq.heapify(turns)
        while turns:
            *_, name = heapq.heappop(turns)
            queue = queues[name]
            *_, i = heapq.heappop(queue)
            if self._add(i):
                has[name] += self._sizes[i]
                rooms[name] -= 1
                if self._granted[i] < self._asks[i].wanted:
                    heapq.heappush(queue, self._turn(i))
            else:
                rooms[name] -= self._needs(i)
            if queue and rooms[name] > 0:
                heapq.heappush(turns, self._lowest(name, queue, has))

    def _needs(self, i: int) -> int:
        """How many more its demand needs."""
        ask = self._asks[i]
        return max(0, ask.wanted - ask.kept - self._granted[i])

    def _lowest(
        self, name: str, queue: Sequence[_Turn], has: Mapping[str, float]
    ) -> tuple[float, tuple[int, bool, int], str]:
        """Where an organization stands. Of those of the same level, the service that is next there
        decides; how urgent it is inside is nothing to the others."""
        return self._level(name, has), queue[0][3:], name

    def _level(self, organization: str, has: Mapping[str, float]) -> float:
        """What it has for its weight; equal parts are equal in whatever order they came."""
        return round(has[organization] / self._quota(organization).weight, 9)

    def _queues(self, members: Sequence[int]) -> dict[str, list[_Turn]]:
        """Per organization, a heap of its services that want more."""
        queues: dict[str, list[_Turn]] = defaultdict(list)
        for i in members:
            if self._granted[i] < self._asks[i].wanted and i not in self._short:
                queues[self._asks[i].organization].append(self._turn(i))
        for queue in queues.values():
            heapq.heapify(queue)
        return queues

    def _turn(self, i: int) -> _Turn:
        """Whose turn it is inside an organization: the most urgent, what is needed, the smallest
        has the next."""
        ask, granted = self._asks[i], self._granted[i]
        has = round(granted * self._sizes_inside[i], 9)
        idle = not self._needs(i)
        return ask.priority, idle, has, -max(0, ask.held - granted), not ask.replacing, i

    def _add(self, i: int) -> bool:
        """Grant one more, if quota and capacity allow it."""
        ask = self._asks[i]
        each = ask.each
        of_theirs = self._used_by[ask.organization].plus(each)
        limit = self._quota(ask.organization).limit
        if limit is not UNLIMITED and not of_theirs.within(limit):
            self._short[i] = "quota", _bound(of_theirs, limit, each)
            return False
        of_all = self._used
        if self._fits[i]:
            if each not in self._no_room:
                of_all = of_all.plus(each)
                if not of_all.within(self._capacity):
                    self._no_room[each] = _bound(of_all, self._capacity, each)
            if each in self._no_room:
                self._short[i] = "capacity", self._no_room[each]
                return False
        self._used, self._used_by[ask.organization] = of_all, of_theirs
        self._granted[i] += 1
        return True

    def _quota(self, organization: str) -> Quota:
        return self._quotas.get(organization, NO_QUOTA)

    def _grant(self, i: int) -> Allocation:
        ask, granted = self._asks[i], self._granted[i]
        if i not in self._short:
            return Allocation(granted)
        cause, dimension = self._short[i]
        place = self._classes[i]
        case = (ask.organization, cause, dimension, place, ask.priority < place)
        why = self._whys.get(case)
        if why is None:
            why = self._whys[case] = self._why(*case)
        return Allocation(granted, f"{granted} of {ask.wanted} granted: {why}", cause)

    def _why(self, name: str, cause: str, dimension: int, place: int, capped: bool) -> str:
        """Why services of an organization with this place among all get less."""
        quota = self._quota(name)
        if cause == "quota":
            return (
                f"organization '{name}' has a quota of {said(dimension, quota.limit[dimension])} "
                f"and wants {said(dimension, self._asked_by[name][dimension])}"
            )
        most_urgent = ", its most urgent beside others," if capped else ""
        return (
            f"{said(dimension, self._asked[dimension])} are wanted and "
            f"{said(dimension, self._capacity[dimension])} can be promised; organization '{name}' "
            f"gets {said(dimension, self._used_by[name][dimension])} at priority "
            f"{place}{most_urgent} and weight {quota.weight:g}"
        )


def _bound(used: Amounts, limit: Amounts, each: Amounts) -> int:
    """The resource that does not suffice."""
    return next(d for d, need in enumerate(each) if need and over(used[d], limit[d]))


def _scarcest(each: Amounts, asked: Amounts, limit: Amounts) -> float:
    """A replica's share of what is scarce and it needs: of the GPUs, else of the scarcest."""
    scarce = [d for d, need in enumerate(each) if need and over(asked[d], limit[d])]
    if not scarce:
        return 0.0
    gpus = Amounts._fields.index("gpus")
    if gpus in scarce:
        scarcest = gpus
    else:
        scarcest = max(scarce, key=lambda d: asked[d] / limit[d] if limit[d] else float("inf"))
    return each[scarcest] / limit[scarcest] if limit[scarcest] else 1.0
