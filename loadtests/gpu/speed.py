"""`bench.py gpu`, as rows of the table of all checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from loadtests.benchmarks import gpu
from loadtests.gpu.finding import Finding

LIMIT_RATIO = 0.8
"""Of pinned memory's speed, for weights in the arena."""


def measured(folder: Path) -> Iterator[Finding]:
    for row in asyncio.run(gpu.measure(folder, quick=False)):
        yield _finding(row)


def _finding(row: gpu.Row) -> Finding:
    if row.seconds is None or row.gb_per_s is None or row.pinned_ratio is None:
        ours = row.way in (gpu.WAYS[gpu.OURS], gpu.WAYS[gpu.FIRST])
        return Finding(row.way, holds=False if ours else None, remark=row.remark)
    figure = f"{row.gb_per_s:.1f} GB/s in {row.seconds:.2f} s, x pinned {row.pinned_ratio:.2f}"
    if row.way != gpu.WAYS[gpu.OURS]:
        return Finding(row.way, figure, remark=row.remark)
    remark = "; ".join(filter(None, (f"to reach: x {LIMIT_RATIO}", row.remark)))
    return Finding(row.way, figure, row.pinned_ratio >= LIMIT_RATIO, remark)
