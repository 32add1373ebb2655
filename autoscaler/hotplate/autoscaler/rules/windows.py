"""Figures over the last seconds of a value that changes in steps.

Nothing here reads a clock: every call takes `now`, which never goes back. A value is in force from
when it is recorded until the next one is.
"""

from __future__ import annotations

import math
from collections import deque


class WindowMean:
    """The time-weighted mean over the last `span_s` seconds, 0 before the first value.

    It is exact. It stores the changes within the span, and touches each twice: when it comes and
    when it leaves the span.
    """

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._steps: deque[tuple[float, float, float]] = deque()
        """(since when, value, area up to then); the first one was in force when the span began."""
        self._value = 0.0
        self._changed_at = 0.0
        self._area = 0.0
        """The integral of the value up to `_changed_at`."""

    def record(self, value: float, now: float) -> None:
        """From `now` on the value is `value`."""
        if value == self._value:
            return
        self._area += self._value * (now - self._changed_at)
        self._value, self._changed_at = value, now
        steps, begin = self._steps, now - self._span_s
        steps.append((now, value, self._area))
        while len(steps) > 1 and steps[1][0] <= begin:
            steps.popleft()

    def mean(self, now: float) -> float:
        """The mean over [now - span, now]."""
        begin = now - self._span_s
        steps = self._steps
        if self._changed_at <= begin or not steps:
            return self._value
        while len(steps) > 1 and steps[1][0] <= begin:
            steps.popleft()
        since, value, area = steps[0]
        before = area + value * (begin - since) if since <= begin else 0.0
        return max(0.0, self._area + self._value * (now - self._changed_at) - before) / self._span_s

    def falls_to(self, mean: float) -> float:
        """When the mean falls to `mean` if the value is 0 and stays 0; -inf = it already has."""
        excess = self._area - mean * self._span_s
        for since, value, area in reversed(self._steps):
            if area < excess:
                return since + (excess - area) / value + self._span_s
        return -math.inf

    @property
    def settled_at(self) -> float:
        """When the mean equals the value, if the value does not change again."""
        return self._changed_at + self._span_s


class WindowMin:
    """The lowest value of the last `span_s` seconds, in amortized constant time."""

    def __init__(self, span_s: float, value: float) -> None:
        self._span_s = span_s
        self._value = value
        self._past: deque[tuple[float, float]] = deque()
        """(value, when it ended), values rising: an older value matters only if it is lower."""

    def record(self, value: float, now: float) -> None:
        """From `now` on the value is `value`."""
        if value == self._value:
            return
        while self._past and self._past[-1][0] >= self._value:
            self._past.pop()
        self._past.append((self._value, now))
        self._value = value

    def min(self, now: float) -> float:
        """The lowest value in force at any time of (now - span, now]."""
        while self._past and self._past[0][1] + self._span_s <= now:
            self._past.popleft()
        return min(self._value, self._past[0][0]) if self._past else self._value

    def rises_above(self, value: float) -> float:
        """When the minimum rises above `value` if nothing more is recorded; inf = never."""
        if self._value <= value:
            return math.inf
        ends = [ended_at for past, ended_at in self._past if past <= value]
        return ends[-1] + self._span_s if ends else -math.inf


class Delayed:
    """The value that was in force `delay_s` seconds ago."""

    def __init__(self, delay_s: float, value: float, now: float) -> None:
        self._delay_s = delay_s
        self._steps: deque[tuple[float, float]] = deque([(now, value)])

    def record(self, value: float, now: float) -> None:
        """From `now` on the value is `value`."""
        if value != self._steps[-1][1]:
            self._steps.append((now, value))
            self.value(now)

    def value(self, now: float) -> float:
        """The last value recorded up to `now - delay`; before that, the first value."""
        while len(self._steps) > 1 and self._steps[1][0] + self._delay_s <= now:
            self._steps.popleft()
        return self._steps[0][1]

    def changes_at(self) -> float:
        """When `value` changes next if nothing more is recorded; inf = never."""
        return self._steps[1][0] + self._delay_s if len(self._steps) > 1 else math.inf
