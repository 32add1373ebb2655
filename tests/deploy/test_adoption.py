"""What a new engine finds of an earlier one: what it takes over, and what it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local import LocalEngine
from hotplate.deploy.processes import Process
from tests.deploy.fakes import (
    MACHINE,
    QUICK,
    FakeRuntime,
    pid_of,
    runs,
    states,
    until,
    workload,
)
from tests.deploy.test_local import running

S = ReplicaState


async def leave_one_running(directory: Path) -> tuple[str, int]:
    """Id and pid of a ready replica whose engine has left."""
    first = LocalEngine(directory, FakeRuntime(), MACHINE, QUICK)
    await first.start()
    await first.scale(workload(), 1)
    (replica,) = await until(first, states(S.READY))
    await first.close()
    return replica.id, pid_of(directory, replica.id)


async def test_a_new_engine_adopts_what_runs(tmp_path: Path) -> None:
    name, pid = await leave_one_running(tmp_path)
    async with running(tmp_path) as engine:
        (adopted,) = engine.replicas()
        assert (adopted.id, adopted.state) == (name, S.READY)
        assert adopted.cold_start_s == pytest.approx(sum(p.share_s for p in adopted.phases))

        await engine.scale(workload(), 1)
        await engine.settle()
        await engine.scale(workload(), 2)
        replicas = await until(engine, states(S.READY, S.READY))
        assert name in {each.id for each in replicas}
        assert runs(pid)

        os.kill(pid, signal.SIGKILL)
        await until(engine, states(S.READY, S.BACKOFF), timeout_s=1.0)


async def test_one_that_is_still_starting_is_adopted_too(tmp_path: Path) -> None:
    first = LocalEngine(tmp_path, FakeRuntime(), MACHINE, QUICK)
    await first.start()
    await first.scale(workload(ready_after_s=0.5), 1)
    await until(first, lambda found: bool(found and found[0].address))
    await first.close()
    async with running(tmp_path) as engine:
        assert engine.replicas()[0].state is S.STARTING
        await until(engine, states(S.READY))


async def settle_by_call(engine: LocalEngine) -> None:
    await engine.settle()


async def wait_for_the_timer(engine: LocalEngine) -> None:
    assert states(S.READY)(engine.replicas())


@pytest.mark.parametrize("settle", [settle_by_call, wait_for_the_timer])
async def test_an_orphan_that_nobody_wants_is_stopped(
    tmp_path: Path, settle: Callable[[LocalEngine], Awaitable[None]]
) -> None:
    _, pid = await leave_one_running(tmp_path)
    soon = replace(QUICK, settle_after_s=0.3 if settle is wait_for_the_timer else 30.0)
    async with running(tmp_path, settings=soon) as engine:
        await settle(engine)
        await until(engine, states())
        assert not runs(pid)


async def test_a_process_whose_record_is_of_another_version_is_stopped(tmp_path: Path) -> None:
    name, pid = await leave_one_running(tmp_path)
    path = tmp_path / f"replicas/{name}/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"workload": {"shape": "new"}}))
    async with running(tmp_path) as engine:
        assert engine.replicas() == []
    assert not runs(pid)


async def test_what_no_record_names_is_ended(tmp_path: Path) -> None:
    """Started just before the engine was killed, or left behind by a leader that died unwatched."""
    name, pid = await leave_one_running(tmp_path)
    (tmp_path / f"replicas/{name}/state.json").unlink()
    async with running(tmp_path) as engine:
        assert engine.replicas() == []
    assert not runs(pid)


async def test_a_recycled_pid_is_not_touched(tmp_path: Path) -> None:
    name, pid = await leave_one_running(tmp_path)
    stranger = Process.spawn(["/bin/sleep", "60"], {}, tmp_path, tmp_path / "log")
    path = tmp_path / f"replicas/{name}/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": stranger.pid}))
    async with running(tmp_path) as engine:
        assert engine.replicas() == []
    assert not runs(pid), "it is found by its environment"
    assert runs(stranger.pid)
    await stranger.terminate(5)
