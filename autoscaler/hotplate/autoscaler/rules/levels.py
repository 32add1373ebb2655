"""Which replicas' worth of demand there is, and since when there is none for the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hotplate.autoscaler.rules.keepalive import KeepAlive


class IdleLevel(NamedTuple):
    """A level without demand."""

    since: float
    until: float
    """Its replica is kept until then; inf = for ever."""
    seen: bool
    """Demand was seen to leave; False = the level was idle when it was first looked at."""

    @property
    def kept_s(self) -> float:
        return self.until - self.since


class KeptReplicas(NamedTuple):
    """Which replicas have demand or are kept for it."""

    replicas: int
    last: IdleLevel | None
    """Of the highest that is idle and kept; None = there is none."""
    level: int
    """Which one that is."""
    until: float
    """When the first of them stops being kept; inf = never."""


class Levels:
    """Levels 1 … `wanted` have demand; each one above is idle, and kept for a time of its own.

    How long is settled when the level becomes idle (`keep_s(level, now)`), so that the end can be
    announced. With the same time for all levels this is the maximum of levels over a window: level
    k is kept exactly while some level of the last `keep_s` seconds was k or more.
    """

    def __init__(
        self, keep_s: Callable[[int, float], float], keep_alive: KeepAlive, proven: int = 0
    ) -> None:
        self.wanted = 0
        self.proven = proven
        """The highest level that an earlier demand has reached; earlier = half of it has left."""
        self._peak = 0
        self._keep_s = keep_s
        self._keep_alive = keep_alive
        self._idle: dict[int, IdleLevel] = {}

    def want(self, wanted: int, now: float) -> None:
        """Demand now reaches level `wanted`; levels that it comes back to tell their gap."""
        if wanted == self.wanted:
            return
        for level in range(self.wanted + 1, wanted + 1):
            idle = self._idle.pop(level, None)
            if idle and idle.seen:
                self._keep_alive.learn(level, now - idle.since, now)
        for level in range(wanted + 1, self.wanted + 1):
            self._leave(level, now, seen=True)
        self.wanted = wanted
        if wanted > self._peak:
            self._peak = wanted
        elif 2 * wanted <= self._peak:
            self.proven = max(self.proven, self._peak)
            self._peak = wanted

    def kept(self, current: int, now: float) -> KeptReplicas:
        """How many of `current` replicas have demand or are kept for it.

        A level counts while all below it do: without them its replica would carry theirs.
        """
        wanted = self.wanted
        replicas, last, at, until = min(wanted, current), None, 0, math.inf
        for level in range(wanted + 1, current + 1):
            idle = self._idle.get(level) or self._leave(level, now, seen=False)
            if now < idle.until and replicas == level - 1:
                replicas = level
                last, at = idle, level
                if idle.until < until:
                    until = idle.until
        return KeptReplicas(replicas, last, at, until)

    def idle(self, level: int, now: float) -> IdleLevel:
        """The idle time of a level above `wanted`; one never looked at before begins now."""
        return self._idle.get(level) or self._leave(level, now, seen=False)

    def renew(self, level: int, now: float) -> None:
        """The level's replica is on its way though its demand is not: it is kept anew from now."""
        idle = self._idle.get(level)
        if level > self.wanted and idle:
            until = max(idle.until, now + self._keep_s(level, now))
            self._idle[level] = idle._replace(until=until)

    def forget(self) -> None:
        """Demand was not known for a while: idle times begin anew and tell no gap."""
        self._idle.clear()

    def _leave(self, level: int, now: float, *, seen: bool) -> IdleLevel:
        idle = self._idle[level] = IdleLevel(now, now + self._keep_s(level, now), seen)
        return idle
