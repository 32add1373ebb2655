from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.control_plane.crash_points import OPERATIONS, Operation, deaths

LEFT_OUT, APART = 3, 8
"""Each third moment is not tried here, and of what is done to roll-outs only each eighth one is."""
ROLLOUTS = ("promote", "undo", "restart", "pause, resume", "abort", "delete an organization")


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: what dies is a process, and each of its many commits would wait for a disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def tried(operation: Operation, moment: int) -> bool:
    """What is tried here; the others are left to `python loadtests/storm.py moments`."""
    return moment % APART == 1 if operation.name in ROLLOUTS else moment % LEFT_OUT > 0


def tried_at_least(operation: Operation) -> int:
    return sum(tried(operation, moment) for moment in range(1, operation.least + 1))


def test_at_least_a_hundred_moments_are_tried() -> None:
    assert sum(map(tried_at_least, OPERATIONS)) >= 100


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_whatever_it_was_doing_when_it_died_is_done_in_the_end(
    folder: Path, operation: Operation
) -> None:
    found = await deaths(folder, operation, partial(tried, operation))
    assert found >= tried_at_least(operation)
