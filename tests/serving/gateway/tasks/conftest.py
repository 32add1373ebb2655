"""A route with a task, for all tests of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.gateway.tasks.task_hall import Hall
from tests.serving.gateway.tasks.task_keeper import TaskKeeper
from tests.support.gateway.kitchen import Kitchen


@pytest.fixture
async def hall(kitchen: Kitchen, tmp_path: Path) -> AsyncIterator[Hall]:
    keeper = TaskKeeper()
    await keeper.start()
    nothing: Any = None
    hall = Hall(kitchen, keeper, tmp_path / "tasks", nothing, nothing, nothing)
    await hall.begin()
    yield hall
    kitchen.backend.gate.set()
    await hall.end()
    await keeper.stop()
