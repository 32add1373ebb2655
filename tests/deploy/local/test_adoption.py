"""What a new engine finds of an earlier one: what it takes over, and what it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.process.detached import Process
from tests.deploy.local.test_engine import running
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import pid_of, runs, states, until
from tests.support.patience import until as eventually

S = ReplicaState


async def leave_one_running(directory: Path) -> tuple[str, int]:
    """Id and pid of a ready replica whose engine has left."""
    first = LocalEngine(host_in(directory, MACHINE), FakeRuntime(), MACHINE, QUICK)
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
        await engine.expect([workload()])
        await engine.scale(workload(), 2)
        replicas = await until(engine, states(S.READY, S.READY))
        assert name in {each.id for each in replicas}
        assert runs(pid)

        os.kill(pid, signal.SIGKILL)
        await until(engine, states(S.READY, S.BACKOFF), timeout_s=1.0)


async def test_an_adopted_one_that_ends_starts_again_with_variables_that_no_record_has(
    tmp_path: Path,
) -> None:
    first = LocalEngine(host_in(tmp_path, MACHINE), FakeRuntime(), MACHINE, QUICK)
    await first.start()
    served = replace(workload(), env={"KEY": "not-on-disk"}, secrets=("hf",))
    await first.scale(served, 1)
    (replica,) = await until(first, states(S.READY))
    await first.close()
    path = tmp_path / "replicas" / replica.id / "state.json"
    record = path.read_text()
    assert '"secrets": ["hf"]' in record
    assert "not-on-disk" not in record
    older = json.loads(record)
    older["workload"] |= {"env": {"KEY": "not-on-disk"}}
    path.write_text(json.dumps(older))
    runtime = FakeRuntime()
    engine = LocalEngine(host_in(tmp_path, MACHINE), runtime, MACHINE, QUICK)
    await engine.start()
    assert "not-on-disk" not in path.read_text(), "an older engine had written it"
    os.kill(pid_of(tmp_path, replica.id), signal.SIGKILL)
    await until(engine, states(S.BACKOFF))
    again = asyncio.create_task(until(engine, states(S.READY)))
    await asyncio.wait({again}, timeout=5 * QUICK.backoff.first_s)
    assert runtime.prepared == [], "it would start without its variables"
    await engine.scale(served, 1)
    await again
    assert (runtime.last.env, runtime.last.secrets) == ({"KEY": "not-on-disk"}, ("hf",))
    await engine.stop_all()
    await engine.close()


async def test_one_that_is_still_starting_is_adopted_too(tmp_path: Path) -> None:
    first = LocalEngine(host_in(tmp_path, MACHINE), FakeRuntime(), MACHINE, QUICK)
    await first.start()
    await first.scale(workload(ready_after_s=0.5), 1)
    await until(first, lambda found: bool(found and found[0].address))
    await first.close()
    async with running(tmp_path) as engine:
        assert engine.replicas()[0].state is S.STARTING
        await until(engine, states(S.READY))


async def test_one_that_cannot_call_its_services_any_more_is_replaced(tmp_path: Path) -> None:
    name, pid = await leave_one_running(tmp_path)
    async with running(tmp_path) as engine:
        await engine.scale(workload(depends={"Back": "http://hotplate:new@127.0.0.1:1"}), 1)
        (replaced,) = await until(engine, lambda all: states(S.READY)(all) and all[0].id != name)
        await engine.scale(workload(depends={"Back": "http://hotplate:new@127.0.0.1:1"}), 1)
        assert engine.replicas()[0].id == replaced.id
        assert not runs(pid)


async def test_an_orphan_that_nobody_wants_is_stopped_when_all_wishes_are_stated(
    tmp_path: Path,
) -> None:
    _, pid = await leave_one_running(tmp_path)
    async with running(tmp_path) as engine:
        await engine.expect([])
        await until(engine, states())
        assert not runs(pid)


async def test_no_clock_ends_what_was_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever states the wishes may hang for as long as it likes."""
    name, pid = await leave_one_running(tmp_path)
    async with running(tmp_path) as engine:
        loop = asyncio.get_running_loop()
        now = loop.time
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: now() + 86_400)
            for _ in range(50):
                await asyncio.sleep(0)
        (adopted,) = engine.replicas()
        assert adopted.id == name
        assert adopted.state in (S.READY, S.UNREADY)
        assert runs(pid)


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


async def test_what_replicas_take_of_the_memory_is_known_to_the_next_engine(tmp_path: Path) -> None:
    key = workload().key
    async with running(tmp_path) as first:
        await first.scale(workload(eats_mib=30), 1)
        await until(first, states(S.READY))
        await eventually(lambda: first.footprint_bytes(key) > 0)
        size_bytes = first.footprint_bytes(key)
    assert size_bytes > 30 << 20
    async with running(tmp_path) as second:
        assert second.footprint_bytes(key) == size_bytes
        await second.scale(workload(), 1)
        await until(second, states(S.READY))
        assert 30 << 20 < second.capacity()["here"].taken.memory_bytes < 100 << 20


@pytest.mark.parametrize("written", ["", "[]", '{"services": 3}', '{"services": [["a", 1]]}'])
async def test_what_cannot_be_read_of_it_is_learnt_again(tmp_path: Path, written: str) -> None:
    (tmp_path / "memory.json").write_text(written)
    async with running(tmp_path) as engine:
        assert engine.footprint_bytes(workload().key) == 0


async def test_what_one_has_taken_in_error_keeps_no_other_from_starting(tmp_path: Path) -> None:
    kept = {"services": [["acme", "a", "Echo", 1 << 40, 1 << 40]]}
    (tmp_path / "memory.json").write_text(json.dumps(kept))
    async with running(tmp_path) as engine:
        assert engine.footprint_bytes(workload().key) == MACHINE.capacity.memory_bytes // 2
        await engine.scale(workload(), 1)
        await until(engine, states(S.READY))
