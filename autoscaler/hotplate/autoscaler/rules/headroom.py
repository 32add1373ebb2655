"""Headroom: a replica that is started before its demand is there, where more demand mostly follows.

When demand rises to a level and stays there, it either rises further, and a request waits for the
next replica, or falls again. How long it stayed and which way it went is learnt for each level.
From that follows for how long after a rise one replica more costs less than it saves. As nothing
has been seen to rise at first, a request alone never starts a second replica.
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
from hotplate.autoscaler.rules.waiting_cost import price_of

SIZE = BUCKETS + 1
PRIOR_FALLS = 1.0
"""Stays that ended with a fall, spread evenly, before the first is seen."""
REST_S = 60.0
"""After a spare that was for nothing, none is started at its level that long, lest one come and
go; Knative's stable window. Longer ones cost more waits than they save starts."""


class LevelDurations:
    """How long demand stayed at one level after a rise: until it rose (first half), or fell."""

    def __init__(self, now: float, weights: list[float] | None = None) -> None:
        self.weights = DecayingHistogram(now, weights or [0.0] * (2 * SIZE))

    def add(self, stay_s: float, rose: bool, now: float) -> None:
        bucket = bucket_of(max(stay_s, SHORTEST_S)) + (0 if rose else SIZE)
        self.weights.add(bucket, now)

    def spare_s(self, price_s: float, start_s: float, now: float) -> float:
        """How long a spare replica is worth having, seconds; `start_s` = until it is ready."""
        find = partial(worth_for, start_s=start_s)
        return self.weights.worked_out(find, price_s, now, case=start_s > 0)


def worth_for(weights: list[float], price_s: float, *, start_s: float) -> float:
    """The edge that minimises what idling, and rises to a missing replica, cost; 0 = none.

    A spare that is still starting when demand rises saves the part of the price that has passed.
    One that is begun costs its start, however soon demand falls.
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
    for spare_s, stay_s, rise, fall in zip(EDGES, MIDDLES, rises, falls, strict=True):
        cost = over + rising * spare_s + falling * max(spare_s, start_s) + rising * price_s
        if cost < best_cost:
            best_s, best_cost = spare_s, cost
        missing = 1 - stay_s / start_s if stay_s < start_s else 0.0
        over += rise * stay_s + fall * max(stay_s, start_s) + rise * price_s * missing
        rising -= rise
        falling -= fall
    return best_s


class Headroom:
    """Of one service. Levels are as `levels.py` has them; `most`: the highest."""

    def __init__(self, now: float, most: int) -> None:
        self._most = most
        self._stays: dict[int, LevelDurations] = {}
        self._level = 0
        self._since = -math.inf
        """When demand rose to the level; -inf = it fell to it, or nobody knows."""
        self._asked = 0
        """Levels up to here have been asked for a spare since demand was last below them."""
        self._until: dict[int, float] = {}
        """Until when each of the levels passed on the way up has its spare."""
        self._rests: dict[int, float] = {}
        """Until when none is started at each level, since its last was for nothing."""

    def demand(self, level: int, now: float) -> None:
        """Demand reaches this level from `now` on."""
        before, since = self._level, self._since
        if level == before:
            return
        if since > -math.inf and before:
            stays = self._stays.get(before)
            if stays is None:
                stays = self._stays[before] = LevelDurations(now)
            stays.add(now - since, level > before, now)
        self._since = now if level > before else -math.inf
        self._level = level
        self._asked = min(self._asked, level)
        for one in [one for one in self._until if one != level]:
            del self._until[one]
            if one > level:
                self._rests[one] = now + REST_S

    def forget(self) -> None:
        """Demand was not known for a while: nobody knows how long it has been where it is."""
        self._since = -math.inf
        self._asked = self._level
        self._until.clear()

    @property
    def is_due(self) -> bool:
        """Whether there may be anything to propose; most of the time there is not."""
        return self._asked < self._level or bool(self._until)

    def propose(self, live: int, pace: StartPace, price_s: float, now: float) -> Proposal:
        """One replica more than demand needs, where that is worth it; asked once for each rise.

        A level that demand only passed has its spare, too: more demand never proposes less. None is
        started that would be given up before it is ready.
        """
        for level in range(self._asked + 1, min(self._level, self._most - 1) + 1):
            stays = self._stays.get(level)
            if stays is not None and (live > level or now >= self._rests.get(level, now)):
                start_s = 0.0 if live > level else pace.cold_start_s
                spare_s = stays.spare_s(price_of(level + 1, pace, price_s), start_s, now)
                if spare_s > start_s:
                    self._until[level] = now + spare_s
        self._asked = self._level
        while self._until:
            level = max(self._until)
            until = self._until[level]
            if now < until:
                return _claim(level, until, now)
            del self._until[level]
            self._rests[level] = now + REST_S
        return NONE

    def to_json(self, now: float) -> dict[str, Any]:
        return {
            str(level): [round(weight, 4) for weight in stays.weights.at(now)]
            for level, stays in sorted(self._stays.items())
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], now: float, most: int) -> Headroom:
        """Read what `to_json` wrote; raises `MemoryInvalid` for anything else."""
        spare = cls(now, most)
        for level, weights in data.items():
            if not level.isdecimal() or not are_weights(weights, 2 * SIZE):
                raise MemoryInvalid(
                    f"spare level {level!r} is not {2 * SIZE} weights; start without it"
                )
            spare._stays[int(level)] = LevelDurations(now, [float(w) for w in weights])
        return spare


def _claim(level: int, until: float, now: float) -> Proposal:
    return Proposal(
        level + 1,
        Cause.SPARE,
        lambda: f"more demand mostly follows, a spare one for {seconds(until - now)} yet",
        until,
    )


NONE = Proposal(0, Cause.IDLE, lambda: "no spare")
