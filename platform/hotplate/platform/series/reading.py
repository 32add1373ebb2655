"""What is kept of subjects for the steps of an answer, from the store and from what is not written
yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from hotplate.platform.series.blocks import coarser, decoded
from hotplate.platform.series.columns import SubjectPoints
from hotplate.platform.series.levels import FINE, MEDIUM, Grid
from hotplate.platform.series.points import Point
from hotplate.platform.store.series import Block, Series

NEWEST_S = 3600
"""Of the last hour the longer steps may not be made yet: those are made from the finest."""


def read(series: Series, subjects: Collection[int], grid: Grid, now: float) -> list[Block]:
    """All blocks that the answer needs, those of the finest step last. Blocks."""
    level = grid.level
    since = grid.begin - level.block_s + 1
    blocks = series.between(level.step_s, since, grid.end, subjects)
    early = {b.subject_id for b in blocks if b.at <= grid.begin - level.step_s}
    blocks += series.last_before(level.step_s, since, set(subjects) - early)
    if level != FINE:
        newest = max(int(now) - NEWEST_S, grid.begin - NEWEST_S)
        blocks += series.between(FINE.step_s, newest, grid.end, subjects)
    return blocks


def tracks(
    blocks: Iterable[Block],
    unwritten: Mapping[int, Iterable[tuple[int, Point]]],
    since: Mapping[int, float],
    grid: Grid,
) -> list[SubjectPoints]:
    """What is known of each subject of `since`, which says from when on it was there."""
    points: dict[int, dict[int, Point]] = defaultdict(dict)
    fine: dict[int, dict[int, Point]] = defaultdict(dict)
    for block in blocks:
        kept = points if block.step_s == grid.level.step_s else fine
        kept[block.subject_id] |= decoded(block.at, block.points)
    for subject, more in unwritten.items():
        kept = points if grid.level == FINE else fine
        for at, point in more:
            # What was written since it was looked at here is whole there.
            kept[subject].setdefault(at, point)
    return [
        SubjectPoints(_joined(points[subject], fine[subject], grid), begun)
        for subject, begun in since.items()
    ]


def _joined(points: dict[int, Point], fine: dict[int, Point], grid: Grid) -> dict[int, Point]:
    """The finest points where there are no longer steps, in steps as long; in order of time."""
    level_s, quarter_s = grid.level.step_s, MEDIUM.block_s
    made = {at - at % quarter_s for at in points}
    others = {at: p for at, p in fine.items() if at - at % quarter_s not in made}
    whole = points | coarser(others, level_s)
    return {at: whole[at] for at in sorted(whole)}
