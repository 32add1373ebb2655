from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.control_plane.crash_points import OPERATIONS, Operation, deaths

LEFT_OUT = 3
"""Each third moment is left to `python loadtests/storm.py moments`, which tries them all."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: what dies is a process, and each of its many commits would wait for a disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def tried_at_least(operation: Operation) -> int:
    return operation.least - operation.least // LEFT_OUT


def test_at_least_a_hundred_moments_are_tried() -> None:
    assert sum(map(tried_at_least, OPERATIONS)) >= 100


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_whatever_it_was_doing_when_it_died_is_done_in_the_end(
    folder: Path, operation: Operation
) -> None:
    assert await deaths(folder, operation, LEFT_OUT) >= tried_at_least(operation)
