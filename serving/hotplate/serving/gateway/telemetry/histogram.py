"""Times counted by length: adding one is a search in twelve numbers."""

from __future__ import annotations

from typing import Final

Bounds = tuple[float, ...]

BOUNDS_S: Final[Bounds] = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From an immediate response to a long cold start."""


class Histogram:
    """Counts of seconds, by `BOUNDS_S`."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, seconds: float) -> None:
        self.count(bucket_of(seconds), seconds)

    def count(self, bucket: int, seconds: float) -> None:
        """The same as `add`, if the index in `BOUNDS_S` is known."""
        self._counts[bucket] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """`(upper bound, how many were at most that)`, as in Prometheus; "+Inf" is the last."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


def bucket_of(seconds: float) -> int:
    """The index of the first bound that is not smaller; their number = there is none."""
    bucket = 0
    for bound in BOUNDS_S:  # most are found early, and compiled this is less than a bisection
        if seconds <= bound:
            break
        bucket += 1
    return bucket
