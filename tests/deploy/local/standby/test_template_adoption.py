"""What is left of templates and their forks when an engine has ended, or was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.records import Records
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from tests.deploy.local.standby.test_pools import pool, ready
from tests.deploy.local.standby.test_templates import begun, more, was_forked
from tests.support.deploy.fake_runtime import workload
from tests.support.deploy.running import pid_of, runs, started, states, until
from tests.support.deploy.templated_engine import POINTS
from tests.support.deploy.templates import (
    AUTOMATIC,
    engine_of,
    forking,
    left_of,
    nothing_left,
    processes_of,
    template_pid,
    templated,
    walled,
)
from tests.support.patience import until as eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")
CHECKOUT = Path(__file__).parents[4]
OFF = StandbySettings(StandbyMode.OFF)
"""No template is made: what there is was left."""
S = ReplicaState


@asynccontextmanager
async def next_engine(
    directory: Path, forks: int, standby: StandbySettings = AUTOMATIC
) -> AsyncIterator[LocalEngine]:
    """One that has adopted so many, and has no other template than its own."""
    host = walled(directory)
    async with started(engine_of(host, forking(), standby)) as engine:
        await engine.scale(workload("a"), 1)
        await engine.scale(workload("b"), forks)
        await engine.expect([workload("a"), workload("b")])
        await until(engine, states(*[S.READY] * (1 + forks)))
        yield engine
    await nothing_left(directory, host)


def begin(directory: Path, forks: int, point: str = "") -> list[str]:
    module = "tests.support.deploy.templated_engine"
    return [sys.executable, "-m", module, str(directory), str(forks), *filter(None, [point])]


async def killed(directory: Path, forks: int, point: str = "") -> None:
    """An engine that has forked so many and was killed; with a point, while it forked another."""
    engine = await asyncio.create_subprocess_exec(
        *begin(directory, forks, point), cwd=CHECKOUT, stdout=asyncio.subprocess.PIPE
    )
    assert engine.stdout is not None
    assert await engine.stdout.readline() == b"ready\n"
    if not point:
        engine.kill()
    assert await engine.wait() == -signal.SIGKILL


async def test_forks_outlive_their_engine_and_the_next_one_adopts_them(tmp_path: Path) -> None:
    host = walled(tmp_path)
    first = engine_of(host, forking())
    await first.start()
    await begun(first)
    forks = await more(first, 3)
    pids = {each.id: pid_of(tmp_path, each.id) for each in forks}
    template = template_pid(tmp_path)
    await first.close()
    assert not runs(template)
    assert all(map(runs, pids.values()))
    async with next_engine(tmp_path, 3) as engine:
        adopted = {each.id: each for each in engine.replicas() if each.key.deployment == "b"}
        assert {each: pid_of(tmp_path, each) for each in adopted} == pids
        assert all(each.restarts == 0 for each in adopted.values())
        os.kill(min(pids.values()), signal.SIGKILL)
        await until(engine, lambda found: any(each.restarts for each in found))
        await until(engine, states(*[S.READY] * 4))
        assert sum(map(runs, pids.values())) == 2


async def test_forks_of_an_engine_that_was_killed_are_adopted(tmp_path: Path) -> None:
    walled(tmp_path)
    await killed(tmp_path, 2)
    async with next_engine(tmp_path, 2) as engine:
        forks = [each for each in engine.replicas() if each.key.deployment == "b"]
        assert all(was_forked(tmp_path, each) and each.restarts == 0 for each in forks)
        await pool(engine, ready(1))  # it comes back, though nobody asks for a replica
        await engine.scale(workload("b"), 3)
        await until(engine, states(*[S.READY] * 4))
        assert engine.standbys.views()[0].forks == 1


async def test_of_a_killed_engine_nothing_is_left_that_nobody_wants(tmp_path: Path) -> None:
    host = walled(tmp_path)
    await killed(tmp_path, 2)
    async with started(engine_of(host, forking(), OFF)) as engine:
        await engine.expect([])
        await until(engine, states())
        await nothing_left(tmp_path, host)


@pytest.mark.parametrize(
    ("point", "forks"), [("walls", 0), ("no record", 0), *((point, 1) for point in POINTS)]
)
async def test_an_engine_that_is_killed_while_it_forks_leaves_only_what_is_adopted(
    tmp_path: Path, point: str, forks: int
) -> None:
    walled(tmp_path)
    await killed(tmp_path, forks, point)
    async with next_engine(tmp_path, forks, OFF) as engine:
        wanted = {str(tmp_path / "replicas" / each.id / "work") for each in engine.replicas()}
        templates = {str(work) for work in Records(tmp_path).standbys()} if forks else set()

        def strays() -> list[str]:
            marks = [mark.partition("=")[2] for mark in processes_of(tmp_path).values()]
            return [mark for mark in marks if mark not in wanted | templates]

        await eventually(lambda: not strays())
        await eventually(lambda: len(os.listdir(tmp_path / "standbys")) == forks)
        await eventually(lambda: len(os.listdir(tmp_path / "replicas")) == 1 + forks)


async def test_an_ended_template_is_cleared_away_with_its_last_fork(tmp_path: Path) -> None:
    host = walled(tmp_path)
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        await more(engine, 2)
        template = template_pid(tmp_path)
        os.kill(template, signal.SIGKILL)
        await eventually(lambda: not runs(template))
        await eventually(lambda: len(os.listdir(tmp_path / "standbys")) == 2)
        await pool(engine, ready(1))
        await engine.scale(workload("b"), 1)
        await until(engine, states(S.READY, S.READY))
        assert len(os.listdir(tmp_path / "standbys")) == 2
        await engine.scale(workload("b"), 0)
        await until(engine, states(S.READY))
        await eventually(lambda: len(os.listdir(tmp_path / "standbys")) == 1)
        await eventually(lambda: len(left_of(tmp_path, host)["groups"]) == 2)
