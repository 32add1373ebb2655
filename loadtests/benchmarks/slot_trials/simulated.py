"""Simulated replicas whose knee is known: the number that is learnt, beside fixed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotplate.serving.gateway.queue.adaptive_limit import MOST, AdaptiveLimit, Mark
from loadtests.benchmarks.slot_trials.table import Row
from loadtests.harness.bounds import at_least, at_most, verdict
from loadtests.harness.report import median
from tests.support.gateway.knees import Batching, Line, Sharing, Shown, load

KNEES = (1, 4, 32, 300)
MOVES = ((32, 4), (4, 32), (1, 32), (32, 300))
BOUNDED_NOISES, FREE_NOISES = (0.1, 0.2), (0.3, 0.5)
"""The noises of rows with a bound, and of rows without one."""
SHAPES = (Sharing, Line)
SEEDS, QUICK_SEEDS = 10, 2
COUNTED = 600
"""How many requests are counted, or ten times the knee if that is more."""
MIXED = 10
"""After so many requests for each slot, those that began together no longer end together."""
PER_S, TIME = at_least(0.9), at_most(1.5)


@dataclass
class Fixed:
    """A limit that stays as it is; nothing is learnt."""

    limit: int
    learnt: int = 0

    def begin(self, now: float) -> Mark:
        return 0.0, 0

    def end(self, begun_at: float, mark: Mark, now: float, *, waiting: bool) -> None:
        pass


@dataclass(frozen=True)
class Replica:
    """A simulated replica, and the knee that is to be found."""

    shape: type[Sharing]
    knee: int
    noise: float
    before: int = 0
    """Where its knee was at first; 0 = it never moves."""

    def shares(self, seed: int) -> tuple[float, float]:
        """The throughput of what is learnt as a share of the best fixed number's, and its time of a
        request as a share of that at the knee."""
        learnt, at_knee = self._learnt(seed), self.fixed(self.knee, seed)
        # Beyond an edge nothing is gained; without an edge, more always gives more.
        best = self.fixed(MOST, seed) if self.shape is Batching else at_knee
        return learnt.per_s / best.per_s, learnt.time_s / at_knee.time_s

    def _learnt(self, seed: int) -> Shown:
        replica = self.shape(self.before or self.knee, self.noise, seed)
        moves_at = _learnt_by(self.before) + COUNTED if self.before else 0
        since = moves_at + _learnt_by(self.knee)

        def move(done: int) -> None:
            if done == moves_at:
                replica.knee = self.knee

        requests = since + _counted(self.knee)
        return load(replica, AdaptiveLimit(), requests, counted_from=since, at=move)

    def fixed(self, number: int, seed: int) -> Shown:
        replica = self.shape(self.knee, self.noise, seed)
        since = MIXED * number
        return load(replica, Fixed(number), since + _counted(number), counted_from=since)


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    return await asyncio.to_thread(lambda: list(_rows(seeds)))


def _rows(seeds: Sequence[int]) -> Iterator[Row]:
    for noise in (*BOUNDED_NOISES, *FREE_NOISES):
        for knee in KNEES:
            yield row_of(f"simulated, knee {knee}, noise {noise}", knee, noise, seeds)
        for before, knee in MOVES:
            figure = f"simulated, knee from {before} to {knee}, noise {noise}"
            yield row_of(figure, knee, noise, seeds, before)
    for knee in KNEES:
        # There is no edge: each further slot slows all, and 1000 give nearly twice as much.
        figure = f"simulated, batches that slow down from {knee} on, noise 0.1"
        replicas = [Replica(Batching, knee, 0.1)]
        yield _of(figure, replicas, seeds, bound=False)


def row_of(figure: str, knee: int, noise: float, seeds: Sequence[int], before: int = 0) -> Row:
    replicas = [Replica(shape, knee, noise, before) for shape in SHAPES]
    return _of(figure, replicas, seeds, bound=noise in BOUNDED_NOISES)


def _of(figure: str, replicas: Sequence[Replica], seeds: Sequence[int], *, bound: bool) -> Row:
    """The worst of the replicas, each by the median of its seeds."""
    per_s, time, good = [], [], []
    for replica in replicas:
        shares = [replica.shares(seed) for seed in seeds]
        per_s.append(median(share for share, _ in shares))
        time.append(median(share for _, share in shares))
        good.append(sum(PER_S.holds(a) and TIME.holds(b) for a, b in shares))
    reached = (PER_S.holds(min(per_s)), TIME.holds(max(time)))
    return Row(
        figure,
        f"{PER_S.text}, {TIME.text}" if bound else "",
        verdict(all(reached)) if bound else "",
        per_s=min(per_s),
        time=max(time),
        seeds=f"{min(good)} of {len(seeds)}",
    )


def _learnt_by(knee: int) -> int:
    """The number of requests by which it should have learnt."""
    return 200 + 10 * knee


def _counted(knee: int) -> int:
    return max(COUNTED, 10 * knee)
