"""How fast demand grows: requests that arrive while a replica starts will be queued too."""

from __future__ import annotations

import math
from collections import deque

SPAN_S = 3.0
SPANS = 4
"""Demand is expected to grow further only if it grew in each of the last four spans of 3 s: a burst
is over sooner, and the noise of a steady stream rarely grows four times in a row."""
STEP_S = 0.5
"""Changes within this time count as one, which bounds how many are stored."""


class Growth:
    """The growth of a count that changes in steps and begins at 0. `now` never goes back."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int]] = deque([(-math.inf, 0)])
        """(since when, the count); the first one was in force when the spans began."""

    def record(self, count: int, now: float) -> None:
        """From `now` on the count is `count`."""
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
        """Growth per second in the span where the count grew least; at least 0."""
        later = self._steps[-1][1]
        least = math.inf
        for span in range(1, SPANS + 1):
            earlier = self._value(now - span * SPAN_S)
            if earlier >= later:
                return 0.0
            least, later = min(least, later - earlier), earlier
        return least / SPAN_S

    def _value(self, at: float) -> int:
        """The count at that time, which lies within the spans."""
        return next(count for since, count in reversed(self._steps) if since <= at)
