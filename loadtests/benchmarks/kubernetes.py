"""The platform on a real Kubernetes of this machine: starts, changes under load, faults, at rest.

The release that `make cluster-install` has made is used and left as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.kubernetes_trials import (
    changes,
    cut,
    embedder,
    killed,
    rest,
    second_pod,
    starts,
)
from loadtests.benchmarks.kubernetes_trials.table import Row
from loadtests.harness.parts import Measures, measured

_MEASURES: Measures[Row] = {
    "starts": starts.measure,
    "changes": changes.measure,
    "cut": cut.measure,
    "killed": killed.measure,
    "rest": rest.measure,
    "second_pod": second_pod.measure,
    "embedder": embedder.measure,
}
PARTS = list(_MEASURES)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    """The parts one after the other, each with deployments of its own."""
    rows: list[Row] = []
    for part in parts or PARTS:
        rows += await measured(_MEASURES, part, folder, quick)
    return rows
