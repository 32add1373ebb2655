"""A replica's usual load, with which `adaptive_limit.py` compares its trials. Pure."""

from __future__ import annotations

import math
from typing import Final

from hotplate.serving.gateway.queue.load_times import LoadTimes

ENOUGH: Final = 16
"""Requests that say how long they take at one load; at large limits, half of those in flight."""
CHANGED: Final = 0.25
"""If requests take this much longer or shorter (log) than before, they have changed."""
RECENT: Final = 8
"""Requests that show such a change."""
FLAT: Final = 0.35
"""The slope of log time over log load up to which no less load need be tried."""
HALF: Final = math.log(2)
LOW_RUN: Final = 64
"""After this many requests in a row at less load, that is the usual load."""


class Baseline:
    """Times at the usual load, and at half of it or less as that occurs."""

    def __init__(self) -> None:
        self.times = LoadTimes()
        self.settled_mean = math.nan
        """The mean log time when less load gained nothing; NaN = that is not known."""
        self._low = LoadTimes()
        """Times at half the usual load or less."""
        self._low_run = 0
        """Requests in a row at such a load."""
        self._recent_mean = 0.0
        """The mean log time of the newest few."""

    @property
    def is_usable(self) -> bool:
        """Whether enough is known of the usual load, and it is the load there is now."""
        return self.times.count >= ENOUGH and not self._low_run

    @property
    def is_settled(self) -> bool:
        """Whether less load is known to gain nothing."""
        return not math.isnan(self.settled_mean) or self._is_flat()

    def add(self, log_s: float, log_load: float) -> float | None:
        """One more request outside of trials.

        Returns None while what is known still holds. Otherwise it was dropped, and the result is by
        how much longer requests take than before (log); 0 if it was the load that has changed.
        """
        times, slower = self.times, None
        self._recent_mean += (log_s - self._recent_mean) / min(times.count + 1, RECENT)
        if self._has_changed():
            slower = self._recent_mean - self.settled_mean
            self.replace(LoadTimes(), LoadTimes())
            self.settled_mean = math.nan
            return slower
        self._low_run = self._low_run + 1 if log_load < times.load - HALF else 0
        if times.count and log_load > times.load + HALF:
            self.replace(LoadTimes(), times)
            slower = 0.0
        elif self._low_run > LOW_RUN:
            self.replace(self._low, LoadTimes())
            slower = 0.0
        if slower is not None:
            self.settled_mean = math.nan
        (self._low if self._low_run else self.times).add(log_s, log_load)
        return slower

    def replace(self, times: LoadTimes, low: LoadTimes) -> None:
        """The usual load, and what is known of a lower one, are others from now on."""
        self.times, self._low, self._low_run = times, low, 0

    def _has_changed(self) -> bool:
        """Whether requests take longer or shorter than when the limit was settled."""
        times = self.times
        if math.isnan(self.settled_mean) or times.count < ENOUGH:
            return False
        off = abs(self._recent_mean - self.settled_mean)
        return off > CHANGED + 3 * times.spread / math.sqrt(RECENT)

    def _is_flat(self) -> bool:
        """Whether requests are known to take as long at less load, as that occurred."""
        low, times = self._low, self.times
        apart = times.load - low.load
        return low.count >= ENOUGH and apart > HALF and times.mean - low.mean < FLAT * apart
