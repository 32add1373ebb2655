"""Counts of what was seen, by bucket, that fade with time; and what was worked out from them."""

from __future__ import annotations

import math
from collections.abc import Callable

HALF_LIFE_S = 24 * 3600.0
"""What was seen counts half after this time: a service asked ten times a day has to learn, too."""
REFRESH_S = 300.0
"""What was worked out is worked out again when it is this old, because weights fade meanwhile."""
NEWS = 0.05
"""And sooner, when what is new makes up this share of the weights: one of hundreds says little."""
SAME_PRICE = 0.2
"""And when the price has moved by more than this share: service times, on which it rests, vary."""
REBASE = 1024.0
"""Weights are brought up to date when a new one weighs so much more than when they last were."""
GONE = 1000.0
"""Half-lives after which nothing is left; a float has no room for the weight of many more."""


class DecayingHistogram:
    """To fade them all is the same as to let each new one weigh more."""

    def __init__(self, now: float, weights: list[float]) -> None:
        self._weights = weights
        self._as_of = now
        self._total = sum(weights)
        self._news = 0.0
        """Weight of what is new since something was worked out."""
        self._known: dict[bool, tuple[float, float, float]] = {}
        """(price, worked out at, result), by `case`."""

    def add(self, bucket: int, now: float) -> None:
        weight = self._weight(now)
        if weight > REBASE:
            self._weights, self._as_of = self.at(now), now
            self._total, self._news, weight = sum(self._weights), self._news / weight, 1.0
        self._weights[bucket] += weight
        self._total += weight
        self._news += weight
        if self._news > NEWS * self._total:
            self._known.clear()

    def at(self, now: float) -> list[float]:
        """Weight per bucket, where what is added now has 1."""
        weight = self._weight(now)
        return [one / weight for one in self._weights]

    def worked_out(
        self,
        find: Callable[[list[float], float], float],
        price_s: float,
        now: float,
        *,
        case: bool = False,
    ) -> float:
        """`find(weights, price_s)`, or what it was a little earlier, in this case."""
        known = self._known.get(case)
        if known is not None:
            price, found_at, result = known
            if abs(price_s - price) <= SAME_PRICE * price and now - found_at < REFRESH_S:
                return result
        result = find(self.at(now), price_s)
        self._known[case], self._news = (price_s, now, result), 0.0
        return result

    def _weight(self, now: float) -> float:
        """Of what is added now."""
        half_lives = (now - self._as_of) / HALF_LIFE_S
        return math.exp2(min(half_lives, GONE)) if half_lives > 0 else 1.0
