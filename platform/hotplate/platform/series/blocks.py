"""Points that follow each other as bytes, a column for each figure; pure.

Most figures of most points are the same as those before, or are not there: as columns of JSON,
compressed, six points take about 250 bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from itertools import groupby

from hotplate.platform.series.points import Point, merged, rounded

_OFFSETS = "at"


def encoded(at: int, points: Mapping[int, Point]) -> bytes:
    """The block that begins `at`, with points by the Unix second in which each begins."""
    offsets = sorted(points)
    columns: dict[str, list[float | None]] = {_OFFSETS: [offset - at for offset in offsets]}
    kept = [rounded(points[offset]) for offset in offsets]
    for name in sorted({name for point in kept for name in point}):
        columns[name] = [point.get(name) for point in kept]
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode())


def decoded(at: int, block: bytes) -> dict[int, Point]:
    """The points of a block that begins `at`, in their order."""
    columns = json.loads(zlib.decompress(block))
    offsets = columns.pop(_OFFSETS)
    points: dict[int, Point] = {at + offset: {} for offset in offsets}
    for name, values in columns.items():
        for point, value in zip(points.values(), values, strict=True):
            if value is not None:
                point[name] = value
    return points


def by_block(points: Iterable[tuple[int, Point]], length_s: int) -> dict[int, dict[int, Point]]:
    """Points by the block of that length in which they begin, and by when they begin; those that
    begin at one time are merged, in their order."""
    blocks: dict[int, dict[int, Point]] = {}
    for at, point in points:
        block = blocks.setdefault(at - at % length_s, {})
        block[at] = merged([block[at], point]) if at in block else point
    return blocks


def coarser(points: Mapping[int, Point], step_s: int) -> dict[int, Point]:
    """The same in longer steps."""
    ordered = sorted(points)
    return {
        step: merged(points[at] for at in members)
        for step, members in groupby(ordered, key=lambda at: at - at % step_s)
    }
