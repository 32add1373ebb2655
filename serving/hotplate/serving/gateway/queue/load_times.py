"""How long requests take under some load, which ones are measured, and two loads compared. Pure."""

from __future__ import annotations

import math
from typing import Final

WINDOW: Final = 128
"""The mean is over about this many of the newest requests."""
LEAST_VARIANCE: Final = 1e-3
"""Least variance of log times: no service is steadier than 3 %."""
SHORTEST_S: Final = 1e-6
STEEP: Final = 0.65
"""The slope of log time over log load from which on a higher load is not worth its time."""
NO_GAIN: Final = 0.8
"""The slope from which on a higher load gains nothing."""
SLOWER: Final = math.log(1.5)
"""Nor is a higher load worth it where requests take this much longer (log)."""


SLOW: Final = 0.15
"""The part of a cohort whose end is not waited for."""
NEVER: Final = 1 << 62


class LoadTimes:
    """Mean and variance of requests' log seconds, and the mean log of their load."""

    __slots__ = ("count", "load", "mean", "variance")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.variance = 0.0
        self.load = 0.0

    def add(self, log_s: float, log_load: float) -> None:
        """One more request."""
        self.count += 1
        weight = 1.0 / min(self.count, WINDOW)
        off = log_s - self.mean
        self.mean += weight * off
        self.variance = (1.0 - weight) * (self.variance + weight * off * off)
        self.load += weight * (log_load - self.load)

    @property
    def spread(self) -> float:
        """The standard deviation of one request's log time."""
        return math.sqrt(self.variance)

    @property
    def error2(self) -> float:
        """The square of the mean's standard error."""
        return (self.variance + LEAST_VARIANCE) / min(max(1, self.count), WINDOW)


class Cohort:
    """A number of requests in the order in which they began, whichever of them ends first.

    The first ends after a change of load are those of short requests, which are no fair sample. So
    requests count by when they began, and the result is read when nearly all of them have ended;
    the rest count for the time that they have run so far.
    """

    __slots__ = ("_first", "_remaining", "_running", "_running_s", "size")

    def __init__(self) -> None:
        self.size = 0
        self._first = NEVER
        """The number of its first request."""
        self._remaining = 0
        """Its requests that have not ended."""
        self._running = 0
        """Those of them that have begun, and the sum of the times at which they did, seconds."""
        self._running_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a cohort."""
        return self._first != NEVER

    @property
    def is_complete(self) -> bool:
        """Whether nearly all of its requests have ended."""
        return self._first != NEVER and self._remaining <= SLOW * self.size

    def open(self, first: int, size: int) -> None:
        """The cohort is `size` requests from the number `first` on."""
        self._first, self.size, self._remaining = first, size, size
        self._running, self._running_s = 0, 0.0

    def close(self) -> None:
        """No request counts until the next `open`."""
        self._first, self._remaining, self._running = NEVER, 0, 0

    def begin(self, number: int, now: float) -> None:
        if self._first <= number < self._first + self.size:
            self._running += 1
            self._running_s += now

    def end(self, number: int, begun_at: float) -> bool:
        """Whether the request's time counts: it is of the cohort, or followed a complete one."""
        if number < self._first:
            return False
        if number < self._first + self.size:
            if not self._running:  # the slow ones have been counted already
                return False
            self._remaining -= 1
            self._running -= 1
            self._running_s -= begun_at
            return True
        return self.is_complete

    def count_slow(self, times: LoadTimes, now: float) -> None:
        """Requests that have not ended count as long as they have run, or the mean if longer."""
        for _ in range(self._running):
            age_s = now - self._running_s / self._running
            times.add(max(times.mean, math.log(max(SHORTEST_S, age_s))), times.load)
        self._remaining = self._running = 0


class LoadComparison:
    """What two loads say about the knee, which `adaptive_limit.py` explains."""

    def __init__(self, low: LoadTimes, high: LoadTimes) -> None:
        """`high` must be the higher load."""
        apart, slower = high.load - low.load, high.mean - low.mean
        slope = slower / apart
        self.certainty = abs(slope - STEEP) * apart / math.sqrt(low.error2 + high.error2)
        """Standard errors between the slope and `STEEP`."""
        self.is_steep = slope > STEEP or slower > SLOWER
        """Whether the higher load is not worth its time."""
        self.gains_nothing = slope > NO_GAIN
        """Whether the higher load gains no throughput."""
        self.knee = math.exp(high.load - max(0.0, slower))
        """The number of requests at once up to which more of them gain throughput."""
