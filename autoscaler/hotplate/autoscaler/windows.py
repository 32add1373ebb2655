"""Figures over the last seconds of a value that changes in steps.

Nothing here has a clock: every call takes `now`, which never goes back. A value holds from when it
is recorded until the next one is.
"""

from __future__ import annotations

import math
from collections import deque


class WindowMean:
    """The time-weighted mean over the last `span_s` seconds, 0 before the first value.

    A ring of buckets, so memory and time stay the same however often the value changes. The oldest
    bucket counts in proportion to what of it is still inside, which is the only inexactness.
    """

    def __init__(self, span_s: float, buckets: int = 60) -> None:
        self._span_s = span_s
        self._width_s = span_s / buckets
        self._areas = [0.0] * (buckets + 1)
        self._value = 0.0
        self._at: float | None = None
        self._changed_at = 0.0

    def record(self, value: float, now: float) -> None:
        """From `now` on the value is `value`."""
        self._advance(now)
        if value != self._value:
            self._value, self._changed_at = value, now

    def mean(self, now: float) -> float:
        """The mean over [now - span, now]."""
        self._advance(now)
        if self.settled_at <= now:
            return self._value
        slot = int(now // self._width_s)
        outside = now / self._width_s - slot
        oldest = self._areas[(slot + 1) % len(self._areas)]
        return max(0.0, sum(self._areas) - oldest * outside) / self._span_s

    @property
    def settled_at(self) -> float:
        """From when on the mean is the value itself, if the value does not change again."""
        return self._changed_at + self._span_s

    def _advance(self, now: float) -> None:
        """Fill the buckets from the last call up to `now` with the current value."""
        at = self._at if self._at is not None else now
        slot, last = int(at // self._width_s), int(now // self._width_s)
        if last - slot >= len(self._areas):
            slot = last - len(self._areas)
            at = (slot + 1) * self._width_s
        while slot < last:
            end = (slot + 1) * self._width_s
            self._areas[slot % len(self._areas)] += self._value * max(0.0, end - at)
            slot, at = slot + 1, end
            self._areas[slot % len(self._areas)] = 0.0
        self._areas[slot % len(self._areas)] += self._value * max(0.0, now - at)
        self._at = now


class WindowMin:
    """The lowest value of the last `span_s` seconds, in amortised constant time."""

    def __init__(self, span_s: float, value: float) -> None:
        self._span_s = span_s
        self._value = value
        self._past: deque[tuple[float, float]] = deque()
        """(value, when it ended), values rising: an older one that is not lower says nothing."""

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
        """When the minimum is above `value` if nothing is recorded any more; inf = never."""
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

    def value(self, now: float) -> float:
        """What was recorded last up to `now - delay`; before that, the first value."""
        while len(self._steps) > 1 and self._steps[1][0] + self._delay_s <= now:
            self._steps.popleft()
        return self._steps[0][1]

    def changes_at(self) -> float:
        """When `value` changes next if nothing is recorded any more; inf = never."""
        return self._steps[1][0] + self._delay_s if len(self._steps) > 1 else math.inf
