"""Grants over time: services state what they wish for, and learn what they get; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic

from hotplate.autoscaler.amounts import UNLIMITED, Amounts
from hotplate.autoscaler.grants import NO_QUOTA, Ask, Grant, Key, Quota, share


class Shares(Generic[Key]):
    """What `share` says of all asks, worked out only where somebody gets less than it wants.

    State asks as they change, then ask for grants. While everything suffices both cost the same
    however many services there are.
    """

    def __init__(
        self, quotas: Mapping[str, Quota] | None = None, capacity: Amounts = UNLIMITED
    ) -> None:
        self._asks: dict[Key, Ask[Key]] = {}
        self._short: dict[Key, Grant] = {}
        """Those that get less than they want."""
        self._affected: set[Key] = set()
        self.limit(quotas or {}, capacity)

    def limit(self, quotas: Mapping[str, Quota], capacity: Amounts) -> None:
        """From now on there is this much."""
        self._quotas, self._capacity = dict(quotas), capacity
        self._asked, self._asked_by = Amounts(), dict[str, Amounts]()
        for ask in self._asks.values():
            self._count(ask, 1)
        self._stale = True

    def state(self, ask: Ask[Key]) -> None:
        """A service wishes for this from now on."""
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

    def grant(self, key: Key) -> Grant:
        """What a service gets now."""
        self._settle()
        return self._short.get(key) or Grant(self._asks[key].wanted)

    def affected(self) -> set[Key]:
        """Services that get another number than when this was asked last, because of others too."""
        self._settle()
        affected, self._affected = self._affected, set()
        return affected

    def _settle(self) -> None:
        if not self._stale:
            return
        self._stale = False
        before, self._short = self._short, {}
        if not self._suffices():
            granted = share(list(self._asks.values()), self._quotas, self._capacity)
            self._short = {key: grant for key, grant in granted.items() if grant.cause}
        for key in {*before, *self._short}:
            was, now = before.get(key), self._short.get(key)
            if (was and was.replicas) != (now and now.replicas):
                self._affected.add(key)

    def _suffices(self) -> bool:
        return self._asked.within(self._capacity) and all(
            asked.within(self._quotas.get(name, NO_QUOTA).limit)
            for name, asked in self._asked_by.items()
        )

    def _count(self, ask: Ask[Key], sign: int) -> None:
        """`share` leaves aside what is larger than all there is, so that is not counted here."""
        times = sign * ask.wanted
        if ask.each.within(self._capacity):
            self._asked = self._asked.plus(ask.each, times)
        theirs = self._asked_by.get(ask.organization, Amounts())
        self._asked_by[ask.organization] = theirs.plus(ask.each, times)
