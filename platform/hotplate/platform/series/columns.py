"""Points as the columns of an answer: one value for each step, None where nothing is known; pure.

Nothing is written of what sleeps, so a step without a point is one in which a deployment slept, if
it did when the point before it ended, and else one of which nothing is known: nobody looked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hotplate.platform.series.levels import FINE, Grid
from hotplate.platform.series.percentiles import SHARES, percentiles
from hotplate.platform.series.points import TIMES, USES, Point, merged, together

_Row: TypeAlias = dict[tuple[str, ...], Any]
"""Values by the names of their member, and of the member within that."""
_COUNTS = ("requests", "errors", "refused")
_MOST = ("in_flight", "queued")
_WHEN_KNOWN = ("cpu_s", "memory_bytes", "gpu_memory_bytes")
"""Of these a point says nothing where nobody could read them."""
_LATE_S = 1.0
"""By how much the looking of a step may be shorter than the step and still be all of it."""


@dataclass(frozen=True)
class SubjectPoints:
    """What is known of one subject."""

    points: Mapping[int, Point]
    """By when they begin, in their order: those of the time that is asked for, and before it at
    least the last one, if there is any."""
    since: float
    """Unix seconds from which on it has been there."""


def columns(grid: Grid, subjects: Sequence[SubjectPoints], now: float) -> dict[str, Any]:
    """The answer's members, of all of the subjects together. `now` in Unix seconds."""
    steps = [_steps(grid, track, now) for track in subjects]
    rows = (
        [
            _row([(at, step) for step in of_step if step is not None], grid, now)
            for at, of_step in zip(grid.at, zip(*steps, strict=True), strict=True)
        ]
        if steps
        else [_row([], grid, now) for _ in grid.at]
    )
    return {"step_s": grid.step_s, "at": grid.at, **_turned(rows)}


def _steps(grid: Grid, track: SubjectPoints, now: float) -> list[Point | None]:
    """One point for each step: an empty one where it slept, None where nothing is known."""
    members: list[list[Point]] = [[] for _ in range(grid.count)]
    awake_before = False
    for at, point in track.points.items():
        if at < grid.begin:
            awake_before = bool(point.get("awake"))
        elif at < grid.end:
            members[(at - grid.begin) // grid.step_s].append(point)
    kept_since = max(track.since, now - grid.level.kept_s)
    found: list[Point | None] = []
    for at, points in zip(grid.at, members, strict=True):
        if points:
            found.append(merged(points))
            awake_before = bool(points[-1].get("awake"))
        else:
            is_known = at + grid.step_s > kept_since and at <= now and not awake_before
            found.append({} if is_known else None)
    return found


def _row(found: Sequence[tuple[int, Point]], grid: Grid, now: float) -> _Row:
    """One step of all subjects of which anything is known then."""
    if not found:
        return _UNKNOWN
    if not any(each for _, each in found):
        return _ASLEEP
    point = together([each for _, each in found])
    lasted_s = [_lasted_s(at, each, grid, now) for at, each in found]

    def mean(name: str) -> float:
        parts = (p.get(name, 0) / s for (_, p), s in zip(found, lasted_s, strict=True))
        return round(sum(parts), 2)

    known_s = point.get("gpu_known_s", 0)
    row: dict[str, Any] = {name: int(point.get(name, 0)) for name in _COUNTS + _MOST}
    row["replicas"] = {
        "wanted": mean("wanted_s"),
        "ready": mean("ready_s"),
        "starting": mean("replica_s.starting"),
        "draining": mean("draining_s"),
    }
    row["cold_starts"] = int(point.get("cold_starts", 0))
    row |= {name: percentiles(point, name) for name in TIMES}
    for kind in ("gpu_s", "replica_s"):
        row[kind] = {use: round(point.get(f"{kind}.{use}", 0), 3) for use in USES}
    row |= {name: point.get(name) for name in _WHEN_KNOWN}
    share = point.get("gpu_share_s", 0) / known_s if known_s else None
    row["gpu_share"] = None if share is None else round(share, 4)
    return dict(_flat(row))


def _lasted_s(at: int, point: Point, grid: Grid, now: float) -> float:
    """How long the step has lasted: as long as was looked at it where it is one of the finest, or
    goes on. A longer one may have been slept through in part."""
    elapsed_s = min(float(grid.step_s), now - at)
    seen_s = point.get("seen_s", 0.0)
    if seen_s and grid.step_s == FINE.step_s:
        return seen_s
    return seen_s if seen_s and seen_s > elapsed_s - _LATE_S else max(elapsed_s, _LATE_S)


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from (((name, inner), each) for inner, each in value.items())
        else:
            yield (name,), value


def _turned(rows: Sequence[_Row]) -> dict[str, Any]:
    """Rows as columns, nested as they were."""
    turned: dict[str, Any] = {}
    for name in rows[0]:
        column = [row[name] for row in rows]
        if len(name) == 1:
            turned[name[0]] = column
        else:
            turned.setdefault(name[0], {})[name[1]] = column
    return turned


_REPLICAS = ("wanted", "ready", "starting", "draining")
_ALL_UNKNOWN: Mapping[str, Any] = {
    **dict.fromkeys(_COUNTS + _MOST),
    "replicas": dict.fromkeys(_REPLICAS),
    "cold_starts": None,
    **dict.fromkeys(TIMES, dict.fromkeys(SHARES)),
    "gpu_s": dict.fromkeys(USES),
    "replica_s": dict.fromkeys(USES),
    **dict.fromkeys(_WHEN_KNOWN),
    "gpu_share": None,
}
_UNKNOWN: _Row = dict(_flat(_ALL_UNKNOWN))
_ASLEEP: _Row = {name: None if name[0] in (*TIMES, "gpu_share") else 0 for name in _UNKNOWN}
