"""Which levels of demand are reached, and for how long the replicas of the others are kept."""

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
    is_observed: bool
    """Demand was observed to leave; False = the level was idle when it was first considered."""

    @property
    def kept_s(self) -> float:
        return self.until - self.since


class KeptReplicas(NamedTuple):
    """The replicas that have demand or are kept for it."""

    replicas: int
    highest_idle: IdleLevel | None
    """The highest idle level whose replica is kept; None = there is none."""
    level: int
    """The number of that level."""
    until: float
    """When the first of the kept replicas may go; inf = never."""


class Levels:
    """Levels 1 … `demanded` have demand; each level above is idle, and kept for its own time.

    That time is fixed when the level becomes idle (`keep_s(level, now)`), so that its end can be
    announced. If all levels had the same time, this would be the maximum over a window: level k is
    kept exactly while demand has reached k in the last `keep_s` seconds.
    """

    def __init__(
        self, keep_s: Callable[[int, float], float], keep_alive: KeepAlive, proven: int = 0
    ) -> None:
        self.demanded = 0
        self.proven = proven
        """The highest level that an earlier demand has reached; earlier = it has halved since."""
        self._peak = 0
        self._keep_s = keep_s
        self._keep_alive = keep_alive
        self._idle: dict[int, IdleLevel] = {}

    def set_demand(self, demanded: int, now: float) -> None:
        """Demand now reaches level `demanded`; the keep-alive learns the gaps that end now."""
        if demanded == self.demanded:
            return
        for level in range(self.demanded + 1, demanded + 1):
            idle = self._idle.pop(level, None)
            if idle and idle.is_observed:
                self._keep_alive.learn(level, now - idle.since, now)
        for level in range(demanded + 1, self.demanded + 1):
            self._leave(level, now, is_observed=True)
        self.demanded = demanded
        if demanded > self._peak:
            self._peak = demanded
        elif 2 * demanded <= self._peak:
            self.proven = max(self.proven, self._peak)
            self._peak = demanded

    def kept(self, current: int, now: float) -> KeptReplicas:
        """How many of `current` replicas have demand or are kept for it.

        A level is kept only while all levels below are: otherwise its replica would carry their
        demand.
        """
        demanded = self.demanded
        replicas, highest, at, until = min(demanded, current), None, 0, math.inf
        for level in range(demanded + 1, current + 1):
            idle = self._idle.get(level) or self._leave(level, now, is_observed=False)
            if now < idle.until and replicas == level - 1:
                replicas = level
                highest, at = idle, level
                if idle.until < until:
                    until = idle.until
        return KeptReplicas(replicas, highest, at, until)

    def idle(self, level: int, now: float) -> IdleLevel:
        """The idle time of a level above `demanded`; it begins now if it was not known before."""
        return self._idle.get(level) or self._leave(level, now, is_observed=False)

    def renew(self, level: int, now: float) -> None:
        """The level's replica starts ahead of its demand: its keep-alive begins now."""
        idle = self._idle.get(level)
        if level > self.demanded and idle:
            until = max(idle.until, now + self._keep_s(level, now))
            self._idle[level] = idle._replace(until=until)

    def forget(self) -> None:
        """Demand was not known for a while: idle times begin again, and their gaps do not count."""
        self._idle.clear()

    def _leave(self, level: int, now: float, *, is_observed: bool) -> IdleLevel:
        idle = self._idle[level] = IdleLevel(now, now + self._keep_s(level, now), is_observed)
        return idle
