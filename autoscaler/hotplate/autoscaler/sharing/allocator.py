"""Allocations over time: services request replicas, and learn how many they get; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from hotplate.autoscaler.sharing.allocation import (
    NO_QUOTA,
    Allocation,
    AllocationRequest,
    Key,
    Quota,
    allocate,
)
from hotplate.autoscaler.sharing.amounts import NOTHING, UNLIMITED, Amounts


class Allocator(Generic[Key]):
    """The result of `allocate` over all requests, calculated only where something is scarce.

    Call `request` for all services that decide now, and then `allocation` for each, so that what
    there is is divided once. An allocation is valid until everything is divided again, which
    happens only when a service wants more than it has; `affected` returns the others that this
    changes.
    """

    def __init__(
        self, quotas: Mapping[str, Quota] | None = None, capacity: Amounts = UNLIMITED
    ) -> None:
        self._requests: dict[Key, AllocationRequest[Key]] = {}
        self._results: dict[Key, tuple[AllocationRequest[Key], Allocation]] = {}
        """Requests and results of the last division; empty while nothing is scarce."""
        self._last_replicas: dict[Key, int] = {}
        """How many replicas `allocation` last returned for each."""
        self._affected: set[Key] = set()
        self.set_limits(quotas or {}, capacity)

    def set_limits(self, quotas: Mapping[str, Quota], capacity: Amounts) -> None:
        """From now on these quotas and this capacity apply."""
        self._quotas, self._capacity = dict(quotas), capacity
        self._requested, self._requested_by = NOTHING, dict[str, Amounts]()
        self._beyond: set[str] = set()
        """Organizations that want more than their quota."""
        for request in self._requests.values():
            self._count(request, 1)
        self._stale = True
        self.settle()

    @property
    def scarce(self) -> bool:
        """Whether more is requested than there may be."""
        return bool(self._beyond) or not self._requested.within(self._capacity)

    def request(self, request: AllocationRequest[Key]) -> None:
        """From now on a service requests this."""
        before = self._requests.get(request.key)
        if request == before:
            return
        if before is not None:
            self._count(before, -1)
        self._count(request, 1)
        self._requests[request.key] = request
        self._stale = True

    def withdraw(self, key: Key) -> None:
        """A service no longer requests anything."""
        if request := self._requests.pop(key, None):
            self._count(request, -1)
            self._stale = True
            self._last_replicas.pop(key, None)
            self._affected.discard(key)

    def settle(self) -> None:
        """Divide what there is among all requests, if something has changed."""
        if not self._stale:
            return
        self._stale = False
        before, self._results = self._results, {}
        if self.scarce:
            granted = allocate(list(self._requests.values()), self._quotas, self._capacity)
            self._results = {
                key: (request, granted[key]) for key, request in self._requests.items()
            }
        for key in before.keys() | self._results.keys():
            last = self._last_replicas.get(key)
            if last is not None:
                gets = (
                    self._results[key][1].replicas if self._results else self._requests[key].wanted
                )
                (self._affected.discard if gets == last else self._affected.add)(key)

    def allocation(self, key: Key) -> Allocation:
        """What a service gets now; if it wants more than it has, everything is divided again."""
        request = self._requests[key]
        grant = Allocation(request.wanted)
        if self.scarce:
            shared, given = self._results.get(key, (None, _NOTHING))
            if shared is not request and request.wanted > given.replicas:
                self.settle()
                shared, given = self._results[key]
            if shared is request:
                grant = given
        self._last_replicas[key] = grant.replicas
        self._affected.discard(key)
        return grant

    def affected(self) -> set[Key]:
        """Services whose number has changed because of others since `allocation` returned it."""
        self.settle()
        affected, self._affected = self._affected, set()
        return affected

    def _count(self, request: AllocationRequest[Key], sign: int) -> None:
        """`allocate` ignores a replica that exceeds the whole capacity; so does this count."""
        times, name = sign * request.wanted, request.organization
        if request.of_capacity.within(self._capacity):
            self._requested = self._requested.plus(request.of_capacity, times)
        total_of_organization = self._requested_by.get(name, NOTHING).plus(request.each, times)
        self._requested_by[name] = total_of_organization
        if total_of_organization.within(self._quotas.get(name, NO_QUOTA).limit):
            self._beyond.discard(name)
        else:
            self._beyond.add(name)


_NOTHING = Allocation(0)
