"""The dashboard in a real browser: how soon things are on the screen, large lists, slow links.

`soon` and `readers` have a whole platform; `many`, `week` and `slow_link` have the API in this
process. `many` looks at the browser's memory for ten minutes; `--quick` for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.dashboard_trials import many, readers, slow_link, soon, week
from loadtests.benchmarks.dashboard_trials.table import Row
from loadtests.harness.parts import Measures, measured

_MEASURES: Measures[Row] = {
    "soon": soon.measure,
    "week": week.measure,
    "many": many.measure,
    "readers": readers.measure,
    "slow_link": slow_link.measure,
}
PARTS = list(_MEASURES)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    """The parts one after the other."""
    rows: list[Row] = []
    for part in parts or PARTS:
        rows += await measured(_MEASURES, part, folder, quick)
    return rows
