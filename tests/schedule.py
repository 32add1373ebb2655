"""Which tests run in one worker, and which begin first: what takes longest ends last otherwise."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/security",)
"""Folders of which one worker runs everything: its files share what takes long to start."""
FIRST = (
    "tests/security",
    "tests/scenarios/test_faults_kills.py",
    "tests/scenarios/test_chains.py",
    "tests/scenarios/test_examples.py",
    "tests/scenarios/test_shown.py",
    "tests/loadtests/test_gpu_day.py",
    "tests/scenarios",
    "tests/test_readme.py",
    "tests/loadtests",
)
"""What begins first, in this order; the rest follows in the order of its folders."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]
    """File by file, but for the folders whose files belong together."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return next((each for each in TOGETHER if file.startswith(f"{each}/")), file)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort them so; those of one file stay in their order."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    file, _, _ = nodeid.partition("::")
    places = (place for place, each in enumerate(FIRST) if f"{file}/".startswith(f"{each}/"))
    return next(places, len(FIRST))
