"""Slots that are not set but learnt, beside `bentoml serve` and beside fixed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.slot_trials import at_once, batches, blocking, simulated
from loadtests.benchmarks.slot_trials.table import Row
from loadtests.harness.parts import Measures, measured

_MEASURES: Measures[Row] = {
    "async": at_once.calls,
    "chats": at_once.chats,
    "batches": batches.measure,
    "blocking": blocking.measure,
    "simulated": simulated.measure,
}
PARTS = list(_MEASURES)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    """The parts one after the other, each with a platform of its own."""
    rows: list[Row] = []
    for part in parts or PARTS:
        rows += await measured(_MEASURES, part, folder, quick)
    return rows
