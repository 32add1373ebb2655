"""Headroom: a replica that starts ahead of its demand, where demand usually rises further.

When demand has risen to a level, it either rises further, and a request waits for the next replica,
or it falls again. For each level we learn how long demand stayed there and which way it went. From
that follows for how long after a rise one more replica costs less than it saves. Since no rise has
been observed at first, a single request never starts a second replica.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause
from hotplate.autoscaler.rules.decay import DecayingHistogram
from hotplate.autoscaler.rules.keepalive import (
    BUCKETS,
    EDGES,
    MIDDLES,
    SHORTEST_S,
    are_weights,
    bucket_of,
)
from hotplate.autoscaler.rules.proposal import Proposal, seconds
from hotplate.autoscaler.rules.useful_start import StartPace
from hotplate.autoscaler.rules.waiting_cost import price_at_level

SIZE = BUCKETS + 1
PRIOR_FALLS = 1.0
"""Falls assumed before the first observation, spread evenly over the buckets."""
PAUSE_S = 60.0
"""After headroom that was not used, a level gets none for this long, so that replicas do not come
and go. Knative's stable window; a longer pause costs more waiting than it saves starts."""


class LevelDurations:
    """How long demand stayed at one level after a rise, until it rose further (the first half of
    the weights) or fell (the second half)."""

    def __init__(self, now: float, weights: list[float] | None = None) -> None:
        self.weights = DecayingHistogram(now, weights or [0.0] * (2 * SIZE))

    def add(self, stay_s: float, rose: bool, now: float) -> None:
        """Demand stayed at the level for `stay_s` seconds, and then `rose` or fell."""
        bucket = bucket_of(max(stay_s, SHORTEST_S)) + (0 if rose else SIZE)
        self.weights.add(bucket, now)

    def headroom_s(self, price_s: float, start_s: float, now: float) -> float:
        """For how many seconds headroom is worth its cost; `start_s`: seconds until it is ready."""
        calculate = partial(best_duration_s, start_s=start_s)
        return self.weights.cached(calculate, price_s, now, case=start_s > 0)


def best_duration_s(weights: list[float], price_s: float, *, start_s: float) -> float:
    """The bucket edge that minimises the cost of idling and of missing replicas; 0 = no headroom.

    A replica that is still starting when demand rises saves the share of the price that its start
    has already covered. A start costs its whole duration, however soon demand falls.
    """
    rises = weights[:SIZE]
    rising = sum(rises)
    if not rising:
        return 0.0
    prior = PRIOR_FALLS / BUCKETS
    falls = [weight + prior for weight in weights[SIZE:]]
    falls[BUCKETS] -= prior
    falling = sum(falls)
    best_s, best_cost, over = 0.0, rising * price_s, 0.0
    for edge_s, stay_s, rise, fall in zip(EDGES, MIDDLES, rises, falls, strict=True):
        cost = over + rising * edge_s + falling * max(edge_s, start_s) + rising * price_s
        if cost < best_cost:
            best_s, best_cost = edge_s, cost
        missing = 1 - stay_s / start_s if stay_s < start_s else 0.0
        over += rise * stay_s + fall * max(stay_s, start_s) + rise * price_s * missing
        rising -= rise
        falling -= fall
    return best_s


class Headroom:
    """The headroom of one service. Levels are those of `levels.py`, up to `max_replicas`."""

    def __init__(self, now: float, max_replicas: int) -> None:
        self._max_replicas = max_replicas
        self._durations: dict[int, LevelDurations] = {}
        self._level = 0
        self._since = -math.inf
        """When demand rose to the level; -inf = it fell to the level, or that is not known."""
        self._highest_considered = 0
        """The highest level whose headroom was considered since demand was last below it."""
        self._kept_until: dict[int, float] = {}
        """Until when each level that demand has reached keeps its headroom."""
        self._paused_until: dict[int, float] = {}
        """Until when each level gets no headroom, because its last one was not used."""

    def set_demand(self, level: int, now: float) -> None:
        """From `now` on demand reaches this level."""
        before, since = self._level, self._since
        if level == before:
            return
        if since > -math.inf and before:
            durations = self._durations.get(before)
            if durations is None:
                durations = self._durations[before] = LevelDurations(now)
            durations.add(now - since, level > before, now)
        self._since = now if level > before else -math.inf
        self._level = level
        self._highest_considered = min(self._highest_considered, level)
        for one in [one for one in self._kept_until if one != level]:
            del self._kept_until[one]
            if one > level:
                self._paused_until[one] = now + PAUSE_S

    def forget(self) -> None:
        """Demand was not known for a while, so how long it has been at its level is not known."""
        self._since = -math.inf
        self._highest_considered = self._level
        self._kept_until.clear()

    @property
    def is_due(self) -> bool:
        """Whether there may be anything to propose; most of the time there is not."""
        return self._highest_considered < self._level or bool(self._kept_until)

    def propose(self, live: int, pace: StartPace, price_s: float, now: float) -> Proposal:
        """One replica more than demand needs, where that is worth its cost; considered once for
        each rise.

        A level that demand only passed gets its headroom too, so that more demand never proposes
        fewer replicas. No replica starts that would be given up before it is ready.
        """
        for level in range(
            self._highest_considered + 1, min(self._level, self._max_replicas - 1) + 1
        ):
            durations = self._durations.get(level)
            if durations is not None and (
                live > level or now >= self._paused_until.get(level, now)
            ):
                start_s = 0.0 if live > level else pace.cold_start_s
                headroom_s = durations.headroom_s(
                    price_at_level(level + 1, pace, price_s), start_s, now
                )
                if headroom_s > start_s:
                    self._kept_until[level] = now + headroom_s
        self._highest_considered = self._level
        while self._kept_until:
            level = max(self._kept_until)
            until = self._kept_until[level]
            if now < until:
                return _proposal(level, until, now)
            del self._kept_until[level]
            self._paused_until[level] = now + PAUSE_S
        return NONE

    def to_json(self, now: float) -> dict[str, Any]:
        return {
            str(level): [round(weight, 4) for weight in durations.weights.at(now)]
            for level, durations in sorted(self._durations.items())
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], now: float, max_replicas: int) -> Headroom:
        """Read what `to_json` wrote; raises `MemoryInvalid` for anything else."""
        headroom = cls(now, max_replicas)
        for level, weights in data.items():
            if not level.isdecimal() or not are_weights(weights, 2 * SIZE):
                raise MemoryInvalid(
                    f"spare level {level!r} is not {2 * SIZE} weights; start without it"
                )
            headroom._durations[int(level)] = LevelDurations(now, [float(w) for w in weights])
        return headroom


def _proposal(level: int, until: float, now: float) -> Proposal:
    return Proposal(
        level + 1,
        Cause.HEADROOM,
        lambda: (
            "demand usually rises further, so one more replica is kept ready "
            f"for another {seconds(until - now)}"
        ),
        until,
    )


NONE = Proposal(0, Cause.IDLE, lambda: "no headroom")
