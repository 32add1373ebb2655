"""A histogram whose counts decay with time, and a cache for what is calculated from it."""

from __future__ import annotations

import math
from collections.abc import Callable

HALF_LIFE_S = 24 * 3600.0
"""An observation counts half after this time. A service that gets ten requests a day has to learn
too."""
REFRESH_S = 300.0
"""A result is calculated again when it is this old, because the weights decay meanwhile."""
REFRESH_SHARE = 0.05
"""A result is also calculated again when new observations make up this share of all weights: one
observation among hundreds changes little."""
PRICE_TOLERANCE = 0.2
"""A result is also calculated again when the price has changed by more than this share. The price
depends on service times, and these vary."""
REBASE = 1024.0
"""All weights are scaled down once a new observation would weigh this much."""
MOST_HALF_LIVES = 1000.0
"""Older observations weigh nothing: a float cannot hold the weight after many more half-lives."""


class DecayingHistogram:
    """Counts by bucket. Instead of scaling all of them down over time, each new observation weighs
    more than those before it."""

    def __init__(self, now: float, weights: list[float]) -> None:
        self._weights = weights
        self._as_of = now
        self._total = sum(weights)
        self._added = 0.0
        """Weight of the observations since the last calculation."""
        self._results: dict[bool, tuple[float, float, float]] = {}
        """(price, calculated at, result), by `case`."""

    def add(self, bucket: int, now: float) -> None:
        """Count one observation in the bucket."""
        weight = self._weight(now)
        if weight > REBASE:
            self._weights, self._as_of = self.at(now), now
            self._total, self._added, weight = sum(self._weights), self._added / weight, 1.0
        self._weights[bucket] += weight
        self._total += weight
        self._added += weight
        if self._added > REFRESH_SHARE * self._total:
            self._results.clear()

    def at(self, now: float) -> list[float]:
        """The weight of each bucket, where an observation made now weighs 1."""
        weight = self._weight(now)
        return [one / weight for one in self._weights]

    def cached(
        self,
        calculate: Callable[[list[float], float], float],
        price_s: float,
        now: float,
        *,
        case: bool = False,
    ) -> float:
        """`calculate(weights, price_s)`, or its last result for this `case` while that is fresh."""
        last = self._results.get(case)
        if last is not None:
            price, calculated_at, result = last
            if abs(price_s - price) <= PRICE_TOLERANCE * price and now - calculated_at < REFRESH_S:
                return result
        result = calculate(self.at(now), price_s)
        self._results[case], self._added = (price_s, now, result), 0.0
        return result

    def _weight(self, now: float) -> float:
        """The weight of an observation made now."""
        half_lives = (now - self._as_of) / HALF_LIFE_S
        return math.exp2(min(half_lives, MOST_HALF_LIVES)) if half_lives > 0 else 1.0
