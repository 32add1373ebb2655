"""How many replicas each service gets when more are requested than there may be; pure.

    quotas = {"a": Quota(Amounts(4, math.inf, math.inf, math.inf)), "b": Quota(weight=2)}
    requests = [
        AllocationRequest("a/chat", "a", Amounts(gpus=1, replicas=1), wanted=6),
        AllocationRequest("b/draw", "b", Amounts(gpus=1, replicas=1), wanted=6),
    ]
    granted = allocate(requests, quotas, capacity=Amounts(6, 64, 2**38, math.inf))
    granted["a/chat"]  # Allocation(replicas=4, reason="4 of 6 granted: …")

A quota limits all replicas of one organization, the capacity those of all organizations. Within
both, lower priorities go first. Inside one priority replicas are allocated one by one to the
organization that has least for its weight (max-min fairness), and there to the service that has
least. Compared with other organizations, a service is at most as urgent as its organization's quota
says: otherwise the organization that writes the lowest number would get everything. A replica
counts as its share of the scarcest resource that it needs: of GPUs where these are scarce, or else
of the resource whose requests exceed its capacity most.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar

from hotplate.autoscaler.sharing.amounts import UNLIMITED, Amounts, amount_text, over, total

Key = TypeVar("Key")

_Turn = tuple[int, bool, float, int, bool, int]
"""The sort key of a service inside its organization; the lowest is next, its index comes last."""

USUAL_PRIORITY = 3
"""The default, of 0 (first) to 7 (last), as in HTTP requests (RFC 9218)."""


@dataclass(frozen=True)
class Quota:
    """What an organization may have in all, and its weight and priority among organizations."""

    limit: Amounts = UNLIMITED
    standby: float = float("inf")
    """How many instances may be kept ready and empty for it."""
    weight: float = 1.0
    """Above 0. Weight 2 gets twice as much as weight 1 where both want as much."""
    priority: int = USUAL_PRIORITY
    """The most urgent priority of its services compared with other organizations'."""


NO_QUOTA = Quota()


@dataclass(frozen=True)
class AllocationRequest(Generic[Key]):
    """What one service requests."""

    key: Key
    organization: str
    each: Amounts
    """What one replica needs: what it counts in its organization's quota."""
    wanted: int
    kept: int = 0
    """How many of the wanted ones are idle and only kept for demand to come back: they go last."""
    running: int = 0
    """How many the service has. Between equals, a service keeps what it has. A new revision takes
    over what the one before it has."""
    replacing: bool = False
    """Whether this is a new revision, which goes first among equals that have nothing."""
    priority: int = USUAL_PRIORITY
    """Its priority inside its organization; compared with others, the quota's limit applies."""
    takes: Amounts | None = None
    """What one replica takes of the capacity where that is something else than `each`."""

    @property
    def of_capacity(self) -> Amounts:
        """What one replica takes of the capacity."""
        return self.each if self.takes is None else self.takes


@dataclass(frozen=True)
class Allocation:
    """How many of the requested replicas a service gets, and why not more."""

    replicas: int
    reason: str = ""
    """Empty where it gets all of them."""
    cause: Literal["", "quota", "capacity"] = ""


def allocate(
    requests: Sequence[AllocationRequest[Key]],
    quotas: Mapping[str, Quota],
    capacity: Amounts = UNLIMITED,
) -> dict[Key, Allocation]:
    """What each service gets. No sum over an organization is ever above its quota.

    An organization without a quota has no limit and weight 1. A replica that is larger than the
    whole capacity is granted and does not count, so that others need not wait for it; it fails when
    it is placed. The same arguments give the same result; ties go to the first in `requests`.
    """
    return _Sharing(requests, quotas, capacity).run()


class _Sharing(Generic[Key]):
    def __init__(
        self,
        requests: Sequence[AllocationRequest[Key]],
        quotas: Mapping[str, Quota],
        capacity: Amounts,
    ) -> None:
        self._requests = requests
        self._quotas = quotas
        self._capacity = capacity
        self._classes = [
            max(request.priority, self._quota(request.organization).priority)
            for request in requests
        ]
        """The priority of each request compared with other organizations."""
        self._fits = [request.of_capacity.within(capacity) for request in requests]
        self._requested = total(
            (request.of_capacity, request.wanted)
            for request, fits in zip(requests, self._fits, strict=True)
            if fits
        )
        by_organization: dict[str, list[tuple[Amounts, float]]] = defaultdict(list)
        for request in requests:
            by_organization[request.organization].append((request.each, request.wanted))
        self._requested_by = {name: total(amounts) for name, amounts in by_organization.items()}
        self._sizes: list[float] = []
        """One replica's share of the scarcest resource that it needs; 0 = none is scarce."""
        self._sizes_inside: list[float] = []
        """The same among the services of one organization, whose quota may be scarcer."""
        self._granted = [0] * len(requests)
        self._used = Amounts()
        self._used_by = dict.fromkeys(by_organization, Amounts())
        self._taken_by = dict.fromkeys(by_organization, Amounts())
        """By organization, what its quota counts, and what it takes of the capacity."""
        self._limited_by: dict[int, tuple[Literal["quota", "capacity"], int]] = {}
        """By index of a request that gets less: what limits it, and the resource."""
        self._reasons: dict[tuple[str, str, int, int, bool], str] = {}
        self._exhausted: dict[Amounts, int] = {}
        """Sizes of replicas for which the capacity no longer suffices, and the resource."""

    def run(self) -> dict[Key, Allocation]:
        if self._all_fit():
            return {request.key: Allocation(request.wanted) for request in self._requests}
        self._measure()
        order = sorted(range(len(self._requests)), key=self._classes.__getitem__)
        for _, group in groupby(order, key=self._classes.__getitem__):
            self._allocate_class(list(group))
        return {request.key: self._grant(i) for i, request in enumerate(self._requests)}

    def _all_fit(self) -> bool:
        return self._requested.within(self._capacity) and all(
            requested.within(self._quota(name).limit)
            for name, requested in self._requested_by.items()
        )

    def _measure(self) -> None:
        sizes: dict[Amounts, float] = {}
        for request in self._requests:
            takes, name = request.of_capacity, request.organization
            size = sizes.get(takes)
            if size is None:
                size = sizes[takes] = _scarcest(takes, self._requested, self._capacity)
            limit, inside = self._quota(name).limit, size
            if limit is not UNLIMITED:
                inside = _scarcest(request.each, self._requested_by[name], limit) or size
            self._sizes.append(size)
            self._sizes_inside.append(inside)

    def _allocate_class(self, members: Sequence[int]) -> None:
        """Allocate among requests of one priority: first what demand needs, then what is kept."""
        has = dict.fromkeys((self._requests[i].organization for i in members), 0.0)
        needed = dict.fromkeys(has, 0.0)
        for i in members:
            needed[self._requests[i].organization] += self._needs(i)
        self._fill(members, has, needed)
        self._fill(members, has, dict.fromkeys(has, math.inf))

    def _fill(
        self, members: Sequence[int], has: dict[str, float], remaining: dict[str, float]
    ) -> None:
        """Allocate one replica after the other to the lowest sort key, until each request has what
        it wants or is limited. An organization gets no more than `remaining` says."""
        queues = self._queues(members)
        turns = [
            self._lowest(name, queue, has) for name, queue in queues.items() if remaining[name]
        ]
        heapq.heapify(turns)
        while turns:
            *_, name = heapq.heappop(turns)
            queue = queues[name]
            *_, i = heapq.heappop(queue)
            if self._add(i):
                has[name] += self._sizes[i]
                remaining[name] -= 1
                if self._granted[i] < self._requests[i].wanted:
                    heapq.heappush(queue, self._turn(i))
            else:
                remaining[name] -= self._needs(i)
            if queue and remaining[name] > 0:
                heapq.heappush(turns, self._lowest(name, queue, has))

    def _needs(self, i: int) -> int:
        """How many more replicas the request's demand needs."""
        request = self._requests[i]
        return max(0, request.wanted - request.kept - self._granted[i])

    def _lowest(
        self, name: str, queue: Sequence[_Turn], has: Mapping[str, float]
    ) -> tuple[float, tuple[int, bool, int], str]:
        """The sort key of an organization. On the same level its next service decides, whose
        priority inside the organization does not count."""
        return self._level(name, has), queue[0][3:], name

    def _level(self, organization: str, has: Mapping[str, float]) -> float:
        """What an organization has for its weight, rounded so that the order of additions does not
        matter."""
        return round(has[organization] / self._quota(organization).weight, 9)

    def _queues(self, members: Sequence[int]) -> dict[str, list[_Turn]]:
        """By organization, a heap of its services that want more."""
        queues: dict[str, list[_Turn]] = defaultdict(list)
        for i in members:
            if self._granted[i] < self._requests[i].wanted and i not in self._limited_by:
                queues[self._requests[i].organization].append(self._turn(i))
        for queue in queues.values():
            heapq.heapify(queue)
        return queues

    def _turn(self, i: int) -> _Turn:
        """The sort key of a service: the most urgent, then what demand needs, then the one that has
        least."""
        request, granted = self._requests[i], self._granted[i]
        has = round(granted * self._sizes_inside[i], 9)
        idle, running = not self._needs(i), max(0, request.running - granted)
        return request.priority, idle, has, -running, not request.replacing, i

    def _add(self, i: int) -> bool:
        """Grant one more replica, if quota and capacity allow it."""
        request = self._requests[i]
        in_organization = self._used_by[request.organization].plus(request.each)
        limit = self._quota(request.organization).limit
        if limit is not UNLIMITED and not in_organization.within(limit):
            self._limited_by[i] = "quota", _bound(in_organization, limit, request.each)
            return False
        in_all, takes = self._used, request.of_capacity
        if self._fits[i]:
            if takes not in self._exhausted:
                in_all = in_all.plus(takes)
                if not in_all.within(self._capacity):
                    self._exhausted[takes] = _bound(in_all, self._capacity, takes)
            if takes in self._exhausted:
                self._limited_by[i] = "capacity", self._exhausted[takes]
                return False
        self._used, self._used_by[request.organization] = in_all, in_organization
        self._taken_by[request.organization] = self._taken_by[request.organization].plus(takes)
        self._granted[i] += 1
        return True

    def _quota(self, organization: str) -> Quota:
        return self._quotas.get(organization, NO_QUOTA)

    def _grant(self, i: int) -> Allocation:
        request, granted = self._requests[i], self._granted[i]
        if i not in self._limited_by:
            return Allocation(granted)
        cause, dimension = self._limited_by[i]
        place = self._classes[i]
        case = (request.organization, cause, dimension, place, request.priority < place)
        why = self._reasons.get(case)
        if why is None:
            why = self._reasons[case] = self._why(*case)
        return Allocation(granted, f"{granted} of {request.wanted} granted: {why}", cause)

    def _why(self, name: str, cause: str, dimension: int, place: int, capped: bool) -> str:
        """Why services of an organization with this priority among all get less."""

        def text(amounts: Amounts) -> str:
            return amount_text(dimension, amounts[dimension])

        quota = self._quota(name)
        if cause == "quota":
            return (
                f"organization '{name}' has a quota of {text(quota.limit)} "
                f"and wants {text(self._requested_by[name])}"
            )
        most_urgent = ", the most urgent that its quota allows," if capped else ""
        return (
            f"{text(self._requested)} are wanted and {text(self._capacity)} can be promised; "
            f"organization '{name}' gets {text(self._taken_by[name])} at priority "
            f"{place}{most_urgent} and weight {quota.weight:g}"
        )


def _bound(used: Amounts, limit: Amounts, each: Amounts) -> int:
    """The resource that does not suffice."""
    return next(d for d, need in enumerate(each) if need and over(used[d], limit[d]))


def _scarcest(each: Amounts, requested: Amounts, limit: Amounts) -> float:
    """A replica's share of the scarce resources that it needs: of GPUs, or else of the scarcest."""
    scarce = [d for d, need in enumerate(each) if need and over(requested[d], limit[d])]
    if not scarce:
        return 0.0
    gpus = Amounts._fields.index("gpus")
    if gpus in scarce:
        scarcest = gpus
    else:
        scarcest = max(scarce, key=lambda d: requested[d] / limit[d] if limit[d] else float("inf"))
    return each[scarcest] / limit[scarcest] if limit[scarcest] else 1.0
