"""How fast demand grows: requests that keep coming while a replica starts will be held, too."""

from __future__ import annotations

import math
from collections import deque

SPAN_S = 3.0
SPANS = 4
"""Only what grew in each of the last four spans of 3 s is taken to go on: a burst is over before,
and the noise of a steady stream rarely grows four times."""
STEP_S = 0.5
"""Changes within this time count as one, so that few have to be remembered."""


class Growth:
    """Of a count that changes in steps, 0 at first. `now` never goes back."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque([(-math.inf, 0)])
        """(since when, the count), the oldest in force as the spans begin."""

    def record(self, count: int, now: float) -> None:
        """From `now` on it is `count`."""
        steps = self._steps
        at, before = steps[-1]
        if count == before:
            return
        if now < at + STEP_S:
            steps[-1] = (at, count)
            return
        steps.append((now, count))
        begin = now - SPANS * SPAN_S
        while steps[1][0] <= begin:
            steps.popleft()

    def per_s(self, now: float) -> float:
        """By how much it grew per second in that of the spans where it grew least, at least 0."""
        later = self._steps[-1][1]
        least = math.inf
        for span in range(1, SPANS + 1):
            earlier = self._value(now - span * SPAN_S)
            if earlier >= later:
                return 0.0
            least, later = min(least, later - earlier), earlier
        return least / SPAN_S

    def _value(self, at: float) -> int:
        """The count at that time, in the last spans."""
        for since, count in reversed(self._steps):
            if since <= at:
                return count
        return 0
