"""Priced keep-alive: how long an idle replica should wait for its demand to come back.

The k-th replica's *level* is the demand that only it can carry: more than (k-1) x concurrency.
When demand leaves a level, a gap begins; it ends when demand comes back. Keeping the replica for
`tau` costs the idle seconds min(gap, tau), and a cold start, worth `price` seconds, if the gap was
longer. Each level has a histogram of its gaps, and tau is what would have cost least over them.

This is the ski-rental problem with a learnt distribution; compare the idle-time histogram of
Shahrad et al., "Serverless in the Wild", ATC 2020. Old gaps decay by time and not by count: the
last 200 gaps of a busy stream cover only seconds, and tau would follow every lull.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.rules.decay import DecayingHistogram

SHORTEST_S = 1.0
"""Shorter gaps are not counted: no replica is ever stopped within a second of its use."""
LONGEST_S = 3600.0
"""No replica is kept longer, so a longer gap counts as one that keep-alive cannot bridge."""
BUCKETS = 24
"""Half-octave buckets from 1 s to 1 h: 2 log2(3600), rounded up."""
PRIOR_GAPS = 3.0
"""Gaps assumed before the first observation, spread evenly over the buckets."""
PRIOR_LONGER_GAPS = 1.0
"""Gaps over an hour assumed before the first observation: for most services, about every fourth
request is followed by such a gap. At the price 600 both together give a tau of about 90 s."""
EDGES = tuple(min(LONGEST_S, SHORTEST_S * 2 ** (i / 2)) for i in range(BUCKETS + 1))
MIDDLES = (*(math.sqrt(low * high) for low, high in pairwise(EDGES)), LONGEST_S)
"""The geometric mean of each bucket, seconds; a gap over an hour counts as an hour."""


def bucket_of(gap_s: float) -> int:
    """The bucket of a gap of at least 1 s; `BUCKETS` for one longer than an hour."""
    if gap_s > LONGEST_S:
        return BUCKETS
    return int(2 * math.log2(gap_s / SHORTEST_S))


class GapHistogram:
    """The decaying gaps of one level, and the keep-alive that follows from them."""

    def __init__(self, now: float, weights: list[float] | None = None) -> None:
        self._weights = DecayingHistogram(now, weights or [0.0] * (BUCKETS + 1))

    def add(self, gap_s: float, now: float) -> None:
        """Count a gap of at least 1 s."""
        self._weights.add(bucket_of(gap_s), now)

    def weights(self, now: float) -> list[float]:
        """The weight of each bucket (the last one: over an hour); a gap that ends now weighs 1."""
        return self._weights.at(now)

    def tau_s(self, price_s: float, now: float) -> float:
        """The keep-alive of the least expected cost, in seconds; one of `EDGES`."""
        return self._weights.cached(_with_prior, price_s, now)


def _with_prior(weights: list[float], price_s: float) -> float:
    prior = PRIOR_GAPS / BUCKETS
    weights = [weight + prior for weight in weights]
    weights[BUCKETS] += PRIOR_LONGER_GAPS - prior
    return cheapest(weights, price_s)


def cheapest(weights: list[float], price_s: float) -> float:
    """The edge tau that minimises the sum over gaps g of min(g, tau) + price x [g > tau]."""
    best, best_cost = EDGES[0], math.inf
    longer = sum(weights)
    bridged_s = 0.0
    for tau_s, weight, gap_s in zip(EDGES, weights, MIDDLES, strict=True):
        cost = bridged_s + longer * (tau_s + price_s)
        if cost < best_cost:
            best, best_cost = tau_s, cost
        bridged_s += weight * gap_s
        longer -= weight
    return best


class KeepAlive:
    """The histograms of all levels of one service.

    `to_json` and `from_json` keep them over a restart of the program, and carry them from one
    revision to the next. Loop time may start again at 0 in between, so the weights are stored as
    they are, and do not decay in between.
    """

    def __init__(self, now: float) -> None:
        self._prior = GapHistogram(now)
        self._levels: dict[int, GapHistogram] = {}

    def learn(self, level: int, gap_s: float, now: float) -> None:
        """Demand came back to `level` (1 = the first replica's) after `gap_s` seconds."""
        if gap_s < SHORTEST_S:
            return
        if level not in self._levels:
            self._levels[level] = GapHistogram(now)
        self._levels[level].add(gap_s, now)

    def tau_s(self, level: int, price_s: float, now: float) -> float:
        """How long the level's replica should be kept after its demand has gone, seconds."""
        return self._levels.get(level, self._prior).tau_s(price_s, now)

    def to_json(self, now: float) -> dict[str, Any]:
        return {
            str(level): [round(weight, 4) for weight in histogram.weights(now)]
            for level, histogram in sorted(self._levels.items())
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], now: float) -> KeepAlive:
        """Read what `to_json` wrote; raises `MemoryInvalid` for anything else."""
        keep_alive = cls(now)
        for level, weights in data.items():
            if not level.isdecimal() or not are_weights(weights, BUCKETS + 1):
                raise MemoryInvalid(
                    f"keep_alive level {level!r} is not {BUCKETS + 1} weights; start without it"
                )
            keep_alive._levels[int(level)] = GapHistogram(now, [float(w) for w in weights])
        return keep_alive


def are_weights(value: object, size: int) -> bool:
    """Whether the JSON value is a list of `size` weights."""
    return (
        isinstance(value, list)
        and len(value) == size
        and all(isinstance(w, int | float) and 0 <= w < math.inf for w in value)
    )
