"""How long requests take under some load, each held against the load that it had itself. Pure."""

from __future__ import annotations

import math
from typing import Final

FADE: Final = 128
"""The mean is over about so many of the newest."""
LEAST_VARIANCE: Final = 1e-3
"""Of log times: no service is steadier than three in a hundred."""
SHORTEST_S: Final = 1e-6
SLOW: Final = 0.15
"""The part of a cohort that is not waited for."""
NEVER: Final = 1 << 62


class Times:
    """Mean and variance of log seconds, and the mean log of the load."""

    __slots__ = ("count", "load", "mean", "variance")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.variance = 0.0
        self.load = 0.0

    def add(self, log_s: float, log_load: float) -> None:
        """One more."""
        self.count += 1
        weight = 1.0 / min(self.count, FADE)
        off = log_s - self.mean
        self.mean += weight * off
        self.variance = (1.0 - weight) * (self.variance + weight * off * off)
        self.load += weight * (log_load - self.load)

    @property
    def spread(self) -> float:
        """The standard deviation of one."""
        return math.sqrt(self.variance)

    @property
    def error2(self) -> float:
        """The square of the mean's standard error."""
        return (self.variance + LEAST_VARIANCE) / min(max(1, self.count), FADE)


class Cohort:
    """So many requests, one after the other as they began, whichever of them ends first.

    The first ends after a change of load are those of short requests: whoever takes those for all
    takes them for too short. So it is told who counts by when he began, and nothing before nearly
    all of them have ended; the rest have taken as long as they have run, at least.
    """

    __slots__ = ("_first", "_left", "_running", "_running_s", "_size")

    def __init__(self) -> None:
        self._first = NEVER
        """The turn of its first one."""
        self._size = 0
        self._left = 0
        """Those that have not ended."""
        self._running = 0
        """Of these, those that have begun, and the sum of the times at which they did, seconds."""
        self._running_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether anybody counts."""
        return self._first != NEVER

    @property
    def is_told(self) -> bool:
        """Whether nearly all of it have ended."""
        return self._first != NEVER and self._left <= SLOW * self._size

    @property
    def size(self) -> int:
        return self._size

    def open(self, turn: int, size: int) -> None:
        """From the turn on they count."""
        self._first, self._size, self._left = turn, size, size
        self._running, self._running_s = 0, 0.0

    def shut(self) -> None:
        """Nobody counts until it is opened."""
        self._first, self._left, self._running = NEVER, 0, 0

    def begin(self, turn: int, now: float) -> None:
        if self._first <= turn < self._first + self._size:
            self._running += 1
            self._running_s += now

    def end(self, turn: int, begun_at: float) -> bool:
        """Whether its time counts: it is one of the cohort, or came after one that is told."""
        if turn < self._first:
            return False
        if turn < self._first + self._size:
            if not self._running:  # those that were slow have been counted already
                return False
            self._left -= 1
            self._running -= 1
            self._running_s -= begun_at
            return True
        return self.is_told

    def count_slow(self, times: Times, now: float) -> None:
        """Those that have not ended count for as long as they have run, or as the others."""
        for _ in range(self._running):
            age_s = now - self._running_s / self._running
            times.add(max(times.mean, math.log(max(SHORTEST_S, age_s))), times.load)
        self._left = self._running = 0
