"""Times counted by length: adding one is a search in twelve numbers."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.protocol.route_counts import BOUNDS_S, Buckets


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

    def since(self, told: Sequence[int]) -> Buckets:
        """What was counted after `told`, which an earlier `counts` was."""
        return tuple(
            (bucket, count - before)
            for bucket, (count, before) in enumerate(zip(self._counts, told, strict=True))
            if count != before
        )

    def counts(self) -> list[int]:
        """One number per bucket, as of now."""
        return list(self._counts)

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
