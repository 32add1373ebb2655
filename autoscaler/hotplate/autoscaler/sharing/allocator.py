"""Allocations over time: services state what they ask for, and learn what they get; pure."""

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
    """What `allocate` says of all asks, worked out only where somebody gets less than it wants.

    State the asks of all who have their turn, then ask for grants: what there is is shared once. A
    grant holds until all is shared anew, which only who wants more than it has makes happen; the
    others are `affected` by it.
    """

    def __init__(
        self, quotas: Mapping[str, Quota] | None = None, capacity: Amounts = UNLIMITED
    ) -> None:
        self._asks: dict[Key, AllocationRequest[Key]] = {}
        self._shared: dict[Key, tuple[AllocationRequest[Key], Allocation]] = {}
        """What was asked and given when all was shared last; empty while everything suffices."""
        self._told: dict[Key, int] = {}
        """What each was told that it gets."""
        self._affected: set[Key] = set()
        self.limit(quotas or {}, capacity)

    def limit(self, quotas: Mapping[str, Quota], capacity: Amounts) -> None:
        """From now on there is this much."""
        self._quotas, self._capacity = dict(quotas), capacity
        self._asked, self._asked_by = NOTHING, dict[str, Amounts]()
        self._beyond: set[str] = set()
        """Organizations that want more than their quota."""
        for ask in self._asks.values():
            self._count(ask, 1)
        self._stale = True
        self.settle()

    @property
    def scarce(self) -> bool:
        """Whether more is asked for than there may be."""
        return bool(self._beyond) or not self._asked.within(self._capacity)

    def state(self, ask: AllocationRequest[Key]) -> None:
        """A service asks for this from now on."""
        before = self._asks.get(ask.key)
        if ask == before:
            return
        if before is not None:
            self._count(before, -1)
        self._count(ask, 1)
        self._asks[ask.key] = ask
        self._stale = True

    def withdraw(self, key: Key) -> None:
        """A service is gone."""
        if ask := self._asks.pop(key, None):
            self._count(ask, -1)
            self._stale = True
            self._told.pop(key, None)
            self._affected.discard(key)

    def settle(self) -> None:
        """Share what there is among all who have said what they ask for."""
        if not self._stale:
            return
        self._stale = False
        before, self._shared = self._shared, {}
        if self.scarce:
            granted = allocate(list(self._asks.values()), self._quotas, self._capacity)
            self._shared = {key: (ask, granted[key]) for key, ask in self._asks.items()}
        for key in before.keys() | self._shared.keys():
            told = self._told.get(key)
            if told is not None:
                gets = self._shared[key][1].replicas if self._shared else self._asks[key].wanted
                (self._affected.discard if gets == told else self._affected.add)(key)

    def grant(self, key: Key) -> Allocation:
        """What a service gets now; who wants more than it has makes all be shared anew."""
        ask = self._asks[key]
        grant = Allocation(ask.wanted)
        if self.scarce:
            shared, given = self._shared.get(key, (None, _NOTHING))
            if shared is not ask and ask.wanted > given.replicas:
                self.settle()
                shared, given = self._shared[key]
            if shared is ask:
                grant = given
        self._told[key] = grant.replicas
        self._affected.discard(key)
        return grant

    def affected(self) -> set[Key]:
        """Services that get another number than they were told, because of others."""
        self.settle()
        affected, self._affected = self._affected, set()
        return affected

    def _count(self, ask: AllocationRequest[Key], sign: int) -> None:
        """`allocate` leaves aside what is larger than all there is, so that is not counted here."""
        times, name = sign * ask.wanted, ask.organization
        if ask.each.within(self._capacity):
            self._asked = self._asked.plus(ask.each, times)
        theirs = self._asked_by.get(name, NOTHING).plus(ask.each, times)
        self._asked_by[name] = theirs
        if theirs.within(self._quotas.get(name, NO_QUOTA).limit):
            self._beyond.discard(name)
        else:
            self._beyond.add(name)


_NOTHING = Allocation(0)
