"""Files and weights from where they lie to where they run, beside peers and the bare wire."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.cache_stages import (
    environment,
    fanout,
    replicas,
    restart,
    stream,
    swarm64,
    unpaced,
    view,
)
from loadtests.benchmarks.cache_stages.table import Row
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.parts import Measures, measured

_MEASURES: Measures[Row] = {
    "stream": stream.measure,
    "unpaced": unpaced.measure,
    "fanout": fanout.measure,
    "swarm64": swarm64.measure,
    "view": view.measure,
    "environment": environment.measure,
    "replicas": replicas.measure,
    "restart": restart.measure,
}
PARTS = list(_MEASURES)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    """A part that cannot be measured is a row that says why, unless nothing else was asked for."""
    rows: list[Row] = []
    for part in parts or PARTS:
        try:
            rows += await measured(_MEASURES, part, folder, quick)
        except BenchmarkFailed as error:
            if parts:
                raise
            rows.append(Row(f"not {part}: {error}", holds="NO"))
    return rows
