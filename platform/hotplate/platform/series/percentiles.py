"""Percentiles of times that were counted in buckets; pure."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.platform.series.points import TIMES, Point, bucket
from hotplate.serving.gateway.protocol.route_counts import BOUNDS_S

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NONE: dict[str, float | None] = dict.fromkeys(SHARES)
_BUCKETS = {name: [bucket(name, each) for each in range(len(BOUNDS_S) + 1)] for name in TIMES}


def percentiles(point: Point, name: str) -> dict[str, float | None]:
    """Those of one of `TIMES`, seconds; None where nothing was counted."""
    counts = [point.get(each, 0) for each in _BUCKETS[name]]
    total = sum(counts)
    if not total:
        return _NONE
    return {key: _at(counts, total * share) for key, share in SHARES.items()}


def _at(counts: Sequence[float], rank: float) -> float:
    """The time that `rank` of them did not exceed: as if those of a bucket were spread evenly over
    it, like Prometheus's `histogram_quantile`. Beyond the last bound nothing is known but that."""
    below = 0.0
    for number, count in enumerate(counts[:-1]):
        if below + count >= rank and count:
            least_s = BOUNDS_S[number - 1] if number else 0.0
            part = (rank - below) / count
            return round(least_s + part * (BOUNDS_S[number] - least_s), 6)
        below += count
    return BOUNDS_S[-1]
