"""Which tests run in one worker, and which begin first: what takes longest ends last otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

T = TypeVar("T")

TOGETHER = (
    ("tests/security/",),
    ("tests/structure/",),
    (
        "tests/scenarios/test_client_tokens.py",
        "tests/scenarios/test_http_clients.py",
        "tests/scenarios/test_shapes.py",
        "tests/scenarios/test_shapes_lives.py",
    ),
)
"""Folders and files that one worker runs: they share what takes long to start, or to read."""
TOGETHER_ON_A_CLUSTER = (
    (
        "tests/scenarios/test_calls_by_page.py",
        "tests/scenarios/test_client_tokens.py",
        "tests/scenarios/test_models.py",
        "tests/scenarios/test_secrets.py",
        "tests/scenarios/test_shapes",
    ),
    ("tests/scenarios/",),
)
"""The same with `--engine kubernetes`, where a worker that runs scenarios has an organization of
its own: to build its environments takes both processors of a small machine for half a minute."""
APART = ("tests/cluster/test_engine.py", "tests/cluster/test_engine_faults.py")
"""Files whose tests share nothing and mostly wait: any worker runs any of them."""
FIRST = (
    "tests/security",
    "tests/loadtests/test_gpu_day.py",
    "tests/scenarios/test_faults_kills.py",
    "tests/loadtests/test_leaders.py",
    "tests/scenarios/test_examples.py",
    "tests/scenarios/test_secrets.py",
    "tests/scenarios/test_chains.py",
    "tests/scenarios/test_client.py",
    "tests/scenarios/test_templates.py",
    "tests/scenarios/test_shown.py",
    "tests/scenarios",
    "tests/test_readme.py",
    "tests/loadtests",
)
"""What begins first, in this order; the rest follows in the order of its folders.

A worker has one platform for the scenarios that it runs in a row: nothing comes between them."""
FIRST_ON_A_CLUSTER = (
    "tests/cluster/test_volumes.py",
    "tests/cluster/test_sqlite.py",
    "tests/cluster/test_engine_faults.py",
    "tests/cluster/test_engine.py",
)
"""What begins first with `--engine kubernetes`."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc]
    """File by file, but for those that belong together, and those whose tests do not."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        if file in APART:
            return nodeid
        is_local = self.config.getoption("--engine") == "local"
        together = TOGETHER if is_local else TOGETHER_ON_A_CLUSTER
        return next((places[0] for places in together if file.startswith(places)), file)


def turned(folders: Sequence[T], worker: int, workers: int) -> list[T]:
    """The folders in another order for each worker.

    In a new checkout nothing is compiled: what one has imported first, the others need not compile.
    """
    first = len(folders) * worker // workers
    return [*folders[first:], *folders[:first]]


def longest_first(items: list[pytest.Item]) -> None:
    """Sort them so, the same in all workers; those of one folder stay in their order."""
    items.sort(
        key=lambda item: (rank(item.nodeid, FIRST), item.nodeid.partition("::")[0].split("/")[:2])
    )


def rank(nodeid: str, first: Sequence[str]) -> int:
    """The place of a test in what begins first; the same for all that is not there."""
    file, _, _ = nodeid.partition("::")
    places = (place for place, each in enumerate(first) if f"{file}/".startswith(f"{each}/"))
    return next(places, len(first))
