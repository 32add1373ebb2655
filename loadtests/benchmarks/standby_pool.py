"""How many of many models' starts find a standby, and what it costs: our planner, and fixed pools.

The starts and stops are those of our own decider on the trace of many models. An instance costs
from its order until it is a replica's or given back, parked time too.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hotplate.autoscaler.simulator.policies import Setup, simulate
from hotplate.autoscaler.standby.planner import StandbyPlanner, StandbyPolicy, Stock
from loadtests.benchmarks.scaling import many_models
from loadtests.harness.report import column
from loadtests.price_sweep import OURS

COLD_START_S = 60.0
REFILL_S = 180.0
"""A node of a cloud that has some."""
SIZES = range(1, 13)
TYPE = "instance"

Event = tuple[float, int]
"""Seconds, and +1 for a start or -1 for the end of a replica."""


@dataclass(frozen=True)
class Row:
    instances: str
    fixed_percent: float | None = column("fixed: % of starts hit", 1)
    fixed_size: float | None = column("mean size", 2)
    parking_percent: float | None = column("fixed, parking: % hit", 1)
    parking_size: float | None = column("mean size", 2)
    ours_percent: float | None = column("planner, at most so many: % hit", 1)
    ours_size: float | None = column("mean size", 2)
    fixed_there_percent: float | None = column("fixed at that size: % hit", 1)


class Pool:
    """Instances in virtual time: ready ones, and those on their way."""

    def __init__(self) -> None:
        self.hits = self.starts = 0
        self.held_s = 0.0
        """Of all instances together."""
        self._ready: list[str] = []
        self._making: list[tuple[float, str]] = []
        self._made = 0
        self._now = 0.0

    @property
    def hit_percent(self) -> float:
        return 100 * self.hits / self.starts

    @property
    def mean_size(self) -> float:
        return self.held_s / self._now

    def replay(self, events: Sequence[Event]) -> Pool:
        for at, change in events:
            self._advance(at)
            if change > 0:
                self.starts += 1
                hit = bool(self._ready)
                if hit:
                    self.hits += 1
                    self._ready.pop(0)
                self.started(at, hit)
            else:
                self.released(at)
        return self

    def started(self, now: float, hit: bool) -> None:
        """A replica starts; on an instance of this pool, if `hit`."""

    def released(self, now: float) -> None:
        """A replica has left its instance."""

    def order(self) -> None:
        heapq.heappush(self._making, (self._now + REFILL_S, self._name()))

    def park(self) -> None:
        self._ready.append(self._name())

    def give_back(self, instance: str) -> None:
        self._ready = [name for name in self._ready if name != instance]
        self._making = [one for one in self._making if one[1] != instance]
        heapq.heapify(self._making)

    @property
    def stock(self) -> Stock:
        return Stock(tuple(self._ready), tuple(name for _, name in sorted(self._making)))

    def _advance(self, now: float) -> None:
        self.held_s += (now - self._now) * (len(self._ready) + len(self._making))
        self._now = now
        while self._making and self._making[0][0] <= now:
            self._ready.append(heapq.heappop(self._making)[1])

    def _name(self) -> str:
        self._made += 1
        return str(self._made)


class Fixed(Pool):
    """A pool of a fixed size: what is taken is ordered again."""

    def __init__(self, size: int, *, parks: bool) -> None:
        super().__init__()
        self._parks = parks
        for _ in range(size):
            self.park()

    def started(self, now: float, hit: bool) -> None:
        if hit:
            self.order()

    def released(self, now: float) -> None:
        """A parking pool keeps the released instance instead of the last one that was ordered."""
        making = self.stock.making
        if self._parks and making:
            self.give_back(making[-1])
            self.park()


class Planned(Pool):
    """A pool that follows our planner, within a budget."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._planner = StandbyPlanner(0.0)
        self._policy = StandbyPolicy(max_instances=most)
        self._refill_known = False

    def started(self, now: float, hit: bool) -> None:
        self._planner.started(TYPE, now, hit=hit)
        if not self._refill_known:
            self._planner.refilled(TYPE, REFILL_S)
            self._refill_known = True
        self._follow(now)

    def released(self, now: float) -> None:
        self.park()
        self._follow(now)

    def _follow(self, now: float) -> None:
        plan = self._planner.plan({TYPE: self.stock}, self._policy, now)[TYPE]
        for instance in plan.give_back:
            self.give_back(instance)
        for _ in range(plan.make):
            self.order()


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    return await asyncio.to_thread(_rows, quick)


def _rows(quick: bool) -> list[Row]:
    trace = many_models(models=20, days=1.0) if quick else many_models(models=60, days=5.0)
    _, fleets = simulate(OURS, trace, Setup(COLD_START_S))
    events = sorted(change for fleet in fleets for change in fleet.changes)
    fixed = {size: Fixed(size, parks=False).replay(events) for size in SIZES}
    curve = [(0.0, 0.0), *((pool.mean_size, pool.hit_percent) for pool in fixed.values())]
    rows = []
    for size in SIZES:
        parking, ours = Fixed(size, parks=True).replay(events), Planned(size).replay(events)
        rows.append(
            Row(
                str(size),
                fixed[size].hit_percent,
                fixed[size].mean_size,
                parking.hit_percent,
                parking.mean_size,
                ours.hit_percent,
                ours.mean_size,
                at(curve, ours.mean_size),
            )
        )
    return rows


def at(curve: Sequence[tuple[float, float]], x: float) -> float | None:
    """The value at `x` of a line through the points; None beyond its end."""
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x <= x1 or math.isclose(x, x1):
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None
