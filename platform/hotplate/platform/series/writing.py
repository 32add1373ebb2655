"""Writes points of all deployments, in one transaction with whatever else is due then.

Points are written as fine as they are. When a quarter of an hour is over, they are also kept in
longer steps, which stay longer. What is due follows from what the database has, so a control plane
that was away at that moment, or ends in the midst of it, leaves nothing out. All of it blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotplate.platform.series.blocks import by_block, coarser, decoded, encoded
from hotplate.platform.series.levels import COARSE, FINE, LEVELS, MEDIUM, Level
from hotplate.platform.series.points import Point, together
from hotplate.platform.store.costs import Consumed, Key
from hotplate.platform.store.parts import Store
from hotplate.platform.store.series import Block, Series

COSTS_KEPT_S = 400 * 86_400
HOUR_S = 3600
QUARTER_S = MEDIUM.block_s
_CATCH_UP_S = 6 * 3600
"""Of so much the longer steps are made in one transaction at most."""

Points = dict[int, Point]


@dataclass
class Unwritten:
    """What is to be written with the next transaction."""

    deployments: dict[int, list[tuple[int, Point]]] = field(default_factory=dict)
    """By id, points and when they begin, in their order."""
    organizations: dict[int, list[tuple[int, Point]]] = field(default_factory=dict)
    costs: dict[Key, Consumed] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.deployments or self.organizations or self.costs)

    def add(self, at: int, deployment_id: int, organization_id: int, name: str, p: Point) -> None:
        """The point of a deployment, or of a version of it, that begins `at`."""
        self.deployments.setdefault(deployment_id, []).append((at, p))
        steps = self.organizations.setdefault(organization_id, [])
        if steps and steps[-1][0] == at:
            steps[-1] = (at, together([steps[-1][1], p]))
        else:
            steps.append((at, p))
        self.take(at, organization_id, name, consumed(p))

    def take(self, at: int, organization_id: int, name: str, more: Consumed) -> None:
        """What it took from `at` on."""
        key = (organization_id, name, hour_of(at))
        self.costs[key] = self.costs[key].plus(more) if key in self.costs else more

    def extend(self, later: Unwritten) -> None:
        """With what has come since."""
        for mine, others in (
            (self.deployments, later.deployments),
            (self.organizations, later.organizations),
        ):
            for subject, points in others.items():
                mine.setdefault(subject, []).extend(points)
        for (organization_id, name, hour), more in later.costs.items():
            self.take(hour, organization_id, name, more)

    def forget(self, deployment_id: int) -> None:
        """It is gone."""
        self.deployments.pop(deployment_id, None)


def hour_of(at: int) -> int:
    """The hour of what is taken from `at` on, by when it begins."""
    return at - at % HOUR_S


def consumed(point: Point) -> Consumed:
    """What a deployment took in a step."""
    return Consumed(
        requests=int(point.get("requests", 0)),
        gpu_busy_s=point.get("gpu_s.busy", 0),
        gpu_idle_s=point.get("gpu_s.idle", 0),
        gpu_starting_s=point.get("gpu_s.starting", 0),
        replica_busy_s=point.get("replica_s.busy", 0),
        replica_idle_s=point.get("replica_s.idle", 0),
        replica_starting_s=point.get("replica_s.starting", 0),
        cost=point.get("cost"),
    )


class SeriesWriter:
    """Used from the store's thread alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._coarse_until = 0
        """Until when the longer steps are made, as far as this process knows."""

    def write(self, unwritten: Unwritten, now: float) -> None:
        """All of it, or nothing. Raises StoreFailed."""
        done = self._coarse_until
        points_of = unwritten.deployments, unwritten.organizations
        with self._store.database.together():
            for series, points in zip(self._both, points_of, strict=True):
                put(series, FINE, points)
                series.forget(FINE.step_s, int(now) - FINE.kept_s)
            self._store.costs.add(unwritten.costs.items())
            quarter = int(now) - int(now) % QUARTER_S
            if quarter > self._coarse_until:
                done = min(self._make_coarse(series, quarter) for series in self._both)
                for series in self._both:
                    for level in LEVELS[1:]:
                        series.forget(level.step_s, int(now) - level.kept_s)
                self._store.costs.forget(int(now) - COSTS_KEPT_S)
        self._coarse_until = done

    @property
    def _both(self) -> Sequence[Series]:
        return self._store.series, self._store.organization_series

    def _make_coarse(self, series: Series, until: int) -> int:
        """Of what is kept finely up to `until`; until when that is done now."""
        last = series.last_at(MEDIUM.step_s)
        first = series.first_at(FINE.step_s, 0 if last is None else last + QUARTER_S)
        if first is None:
            return until
        since = first - first % QUARTER_S
        until = min(until, since + _CATCH_UP_S)
        fine: dict[int, Points] = defaultdict(dict)
        for block in series.between(FINE.step_s, since, until):
            fine[block.subject_id] |= decoded(block.at, block.points)
        put(series, MEDIUM, {i: coarser(p, MEDIUM.step_s).items() for i, p in fine.items()})
        put(series, COARSE, {i: coarser(p, COARSE.step_s).items() for i, p in fine.items()})
        return until


def put(series: Series, level: Level, points: Mapping[int, Iterable[tuple[int, Point]]]) -> None:
    """Puts points beside those of the same blocks that are there."""
    new = {
        (subject, at): block
        for subject, of_subject in points.items()
        for at, block in by_block(of_subject, level.block_s).items()
    }
    if not new:
        return
    begins = [at for _, at in new]
    subjects = {subject for subject, _ in new}
    for block in series.between(level.step_s, min(begins), max(begins) + 1, subjects):
        key = (block.subject_id, block.at)
        if key in new:
            before = decoded(block.at, block.points)
            (new[key],) = by_block([*before.items(), *new[key].items()], level.block_s).values()
    series.put(
        Block(subject, level.step_s, at, encoded(at, block)) for (subject, at), block in new.items()
    )
