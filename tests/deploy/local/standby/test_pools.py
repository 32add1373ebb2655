"""Warm processes that become replicas, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.records import Records
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.standbys import StandbyMode, StandbySettings, StandbyView
from hotplate.deploy.workload import Resources
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import pid_of, runs, started, states, until
from tests.support.patience import PATIENCE_S

S = ReplicaState
FIXED = StandbySettings(StandbyMode.FIXED, calm_s=0.0)


@asynccontextmanager
async def running(
    directory: Path,
    runtime: FakeRuntime,
    standby: StandbySettings = FIXED,
    machine: Machine = MACHINE,
    cgroups: Cgroups | None = None,
) -> AsyncIterator[LocalEngine]:
    settings = replace(QUICK, standby=standby)
    engine = LocalEngine(
        host_in(directory, machine, cgroups=cgroups), runtime, machine, settings, random.Random(1)
    )
    async with started(engine):
        yield engine
    assert os.listdir(directory / "replicas") == []
    assert os.listdir(directory / "standbys") == []


async def pool(engine: LocalEngine, condition: Callable[[StandbyView], bool]) -> StandbyView:
    """The only pool, once the condition holds for it."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not [view for view in engine.standbys.views() if condition(view)]:
                await engine.changed()
    except TimeoutError:
        raise AssertionError(f"still {engine.standbys.views()}") from None
    (view,) = engine.standbys.views()
    return view


def ready(count: int) -> Callable[[StandbyView], bool]:
    return lambda view: view.ready == count and not view.making


def warm() -> FakeRuntime:
    runtime = FakeRuntime()
    runtime.warm = {}
    return runtime


def idle_standby(directory: Path) -> Path:
    """The marker of the only one that is no replica."""
    records = Records(directory)
    (mark,) = records.standbys(records.ids())
    return mark


def is_alone(directory: Path) -> bool:
    """Whether the folder of an earlier one is gone too."""
    records = Records(directory)
    return len(records.standbys(records.ids())) == 1


def standby_pid(directory: Path) -> int:
    (process,) = Process.find("HOTPLATE_REPLICA_DIR", [str(idle_standby(directory))])
    process.leave()
    return process.pid


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


@pytest.fixture(params=["groups", "watched"])
def cgroups(request: pytest.FixtureRequest, tmp_path: Path) -> Cgroups:
    """Control groups where this machine allows them, and the way without."""
    if request.param == "watched":
        return Cgroups(tmp_path, 64 << 30, root=tmp_path / "no-such-root")
    found = Cgroups(tmp_path, 64 << 30)
    if not found.enforced:
        pytest.skip("no control group may be made here")
    return found


@pytest.mark.parametrize(
    ("groups", "walls", "why"),
    [
        (False, True, "control groups cannot be used"),
        (True, False, "there are no walls around "),
    ],
)
async def test_where_forks_could_not_be_told_apart_there_are_standbys_and_it_is_said(
    tmp_path: Path, groups: bool, walls: bool, why: str
) -> None:
    """Without control groups; without a wall, as around the ids of an ordinary user's replicas."""
    cgroups = Cgroups(tmp_path, 64 << 30, Path("/") if groups else tmp_path / "no-such-root")
    if groups and not cgroups.enforced:
        pytest.skip("no control group may be made here")
    host = host_in(tmp_path, MACHINE, cgroups=cgroups, isolation=Isolation([tmp_path] * walls))
    if walls and host.isolation.forks_refused:
        pytest.skip(host.isolation.forks_refused)
    settings = replace(QUICK, standby=StandbySettings(min_starts=1, calm_s=0.0))
    runtime = warm()
    runtime.forks = True
    async with started(LocalEngine(host, runtime, MACHINE, settings, random.Random(1))) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        view = await pool(engine, lambda view: view.ready > 0)
        assert view.templates == 0
        assert view.unforkable.startswith(why)
        await engine.scale(workload("b"), 1)
        await until(engine, states(S.READY, S.READY))
        await pool(engine, lambda view: (view.hits, view.forks) == (1, 0))


async def test_none_is_made_before_a_replica_has_told_what_it_imports(tmp_path: Path) -> None:
    async with running(tmp_path, warm()) as engine:
        await engine.scale(workload("a", ready_after_s=0.5), 1)
        await pool(engine, lambda view: view.starts == 1)
        while engine.replicas()[0].state is not S.READY:
            (view,) = engine.standbys.views()
            assert (view.ready, view.making) == (0, 0)
            await engine.changed()
        await pool(engine, ready(1))


async def test_standbys_that_say_that_they_are_of_no_use_are_made_no_more(tmp_path: Path) -> None:
    why = "a module cannot be imported here"
    runtime = FakeRuntime()
    runtime.warm = {"UNUSABLE": why}
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        view = await pool(engine, lambda view: view.reason == why)
        assert (view.ready, view.making, view.wanted) == (0, 0, 0)


async def test_no_standby_is_made_for_a_replica_of_several_processes_or_becomes_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, warm()) as engine:
        await engine.scale(workload("a", workers=2), 1)
        await until(engine, states(S.READY))
        assert engine.standbys.views() == []
        await engine.scale(workload("b"), 1)
        await until(engine, states(S.READY, S.READY))
        await pool(engine, ready(1))
        await engine.scale(workload("a", workers=2), 2)
        await until(engine, states(S.READY, S.READY, S.READY))
        view = await pool(engine, ready(1))
        assert (view.hits, view.starts) == (0, 1)


async def test_a_standby_becomes_the_next_replica_of_any_service_of_its_environment(
    tmp_path: Path, cgroups: Cgroups
) -> None:
    async with running(tmp_path, warm(), cgroups=cgroups) as engine:
        await engine.scale(workload("a", resources=Resources(memory_bytes=512 << 20)), 1)
        (first,) = await until(engine, states(S.READY))
        view = await pool(engine, ready(1))
        assert (view.hits, view.starts, view.wanted) == (0, 1, 1)
        assert view.reason == "1 fixed by the operator"
        assert engine.capacity()["here"][1].memory_bytes == (512 << 20) + view.memory_bytes
        pid = standby_pid(tmp_path)

        limited = Resources(memory_bytes=1 << 30)
        wanted = workload("b", env={"GREETING": "hello"}, resources=limited, daemon="yes")
        await engine.scale(wanted, 1)
        replicas = await until(engine, states(S.READY, S.READY))
        (second,) = (each for each in replicas if each.id != first.id)
        assert pid_of(tmp_path, second.id) == pid
        work = tmp_path / "replicas" / second.id / "work"
        seen = json.loads((work / "seen.json").read_text())
        assert (seen["GREETING"], seen["WAS"]) == ("hello", "standby")
        assert seen["HOTPLATE_REPLICA_DIR"] == str(work)
        assert await engine.logs(second.id, 1) == ["line 0"]
        assert proc(pid, "oom_score_adj").strip() == "500"
        assert [phase.name for phase in second.phases][:3] == ["instance", "environment", "process"]
        again = await pool(engine, ready(1))
        assert (again.hits, again.starts) == (1, 2)

        daemon = int((work / "daemon").read_text())
        await engine.scale(wanted, 0)
        await until(engine, states(S.READY))
        assert not runs(pid)
        assert not runs(daemon), "what it started ends with it"


async def test_a_standby_becomes_no_replica_of_another_organization(tmp_path: Path) -> None:
    async with running(tmp_path, warm()) as engine:
        await engine.scale(workload("a"), 1)
        (first,) = await until(engine, states(S.READY))
        await pool(engine, ready(1))
        pid = standby_pid(tmp_path)
        theirs = workload("b")
        theirs = replace(theirs, key=replace(theirs.key, organization="others"))
        await engine.scale(theirs, 1)
        replicas = await until(engine, states(S.READY, S.READY))
        (second,) = (each for each in replicas if each.id != first.id)
        assert pid_of(tmp_path, second.id) != pid
        assert {view.environment for view in engine.standbys.views()} == {theirs.bento_manifest}
        assert len(engine.standbys.views()) == 2


async def test_a_replica_that_was_a_standby_is_adopted_and_idle_standbys_end(
    tmp_path: Path, cgroups: Cgroups
) -> None:
    runtime, settings = warm(), replace(QUICK, standby=FIXED)
    first = LocalEngine(
        host_in(tmp_path, MACHINE, cgroups=cgroups), runtime, MACHINE, settings, random.Random(1)
    )
    await first.start()
    await first.scale(workload("a"), 1)
    await until(first, states(S.READY))
    await pool(first, ready(1))
    await first.scale(workload("a"), 2)
    replicas = await until(first, states(S.READY, S.READY))
    await pool(first, ready(1))
    idle = standby_pid(tmp_path)
    pids = {pid_of(tmp_path, replica.id) for replica in replicas}
    await first.close()
    assert not runs(idle)
    assert all(map(runs, pids))
    async with running(tmp_path, runtime) as second:
        await second.scale(workload("a"), 2)
        await second.expect([workload("a")])
        adopted = await until(second, states(S.READY, S.READY))
        assert {pid_of(tmp_path, replica.id) for replica in adopted} == pids
        view = await pool(second, ready(1))
        assert (view.hits, view.starts) == (1, 2), "what was learnt is kept"
    assert not any(map(runs, pids))


async def test_a_killed_engine_leaves_no_standby(tmp_path: Path) -> None:
    """The channel ends with the engine; what is left otherwise is cleared away by the next."""
    (tmp_path / "standbys" / "standby-lost" / "work").mkdir(parents=True)
    work = tmp_path / "standbys" / "standby-lost" / "work"
    lost = Process.spawn(["/bin/sleep", "60"], {"HOTPLATE_REPLICA_DIR": str(work)}, "/", os.devnull)
    async with running(tmp_path, warm()):
        await lost.wait()
    assert not runs(lost.pid)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("REFUSES", "yes"),
        ("BROKEN", "/"),
        pytest.param("SAYS", "b'x' * (1 << 24)", id="a line without end"),
        pytest.param("SAYS", "b'[' * 60_000 + b'\\n'", id="brackets"),
        pytest.param("SAYS", "b'[]\\n'", id="no object"),
        pytest.param("SAYS", "b'\\xff\\n'", id="no text"),
    ],
)
async def test_a_replica_whose_standby_fails_starts_cold(
    tmp_path: Path, knob: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    runtime = warm()
    runtime.warm = {knob: value}
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload("a"), 1)
        (first,) = await until(engine, states(S.READY))
        if knob != "BROKEN":
            await pool(engine, ready(1))
        await engine.scale(workload("a"), 2)
        replicas = await until(engine, states(S.READY, S.READY))
        (second,) = (each for each in replicas if each.id != first.id)
        assert second.restarts == 0
        assert knob != "SAYS" or "its standby did not: it wrote " in caplog.text
        seen = tmp_path / "replicas" / second.id / "work" / "seen.json"
        assert "WAS" not in json.loads(seen.read_text())
        view = await pool(engine, lambda view: view.starts == 2)
        assert view.hits == 0


async def test_a_standby_that_was_born_otherwise_is_replaced_and_not_taken(tmp_path: Path) -> None:
    runtime = warm()
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await pool(engine, ready(1))
        old = standby_pid(tmp_path)
        runtime.warm = {"PYTHONPATH": "/of/a/newer/version"}
        await engine.scale(workload("a"), 2)
        await until(engine, states(S.READY, S.READY))
        assert (await pool(engine, lambda view: view.starts == 2)).hits == 0
        await pool(engine, lambda view: view.ready == 1 and not runs(old) and is_alone(tmp_path))
        assert b"/of/a/newer/version" in proc(standby_pid(tmp_path), "environ").encode()


async def test_a_standby_that_dies_is_replaced_after_a_pause(tmp_path: Path) -> None:
    async with running(tmp_path, warm()) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await pool(engine, ready(1))
        pid = standby_pid(tmp_path)
        os.kill(pid, signal.SIGKILL)
        died = asyncio.get_running_loop().time()
        await pool(engine, ready(0))
        await pool(engine, ready(1))
        pause_s = asyncio.get_running_loop().time() - died
        assert pause_s >= BackoffSettings().first_s
        assert standby_pid(tmp_path) != pid


async def test_a_standby_gives_way_before_a_replica_stays_pending(tmp_path: Path) -> None:
    gib = 1 << 30
    small = replace(MACHINE, memory_bytes=2 * gib, arena_bytes=0)
    share = replace(FIXED, memory_share=1.0)
    async with running(tmp_path, warm(), share, small) as engine:
        await engine.scale(workload("a", resources=Resources(memory_bytes=gib // 4)), 1)
        await until(engine, states(S.READY))
        await pool(engine, ready(1))
        pid = standby_pid(tmp_path)
        rest_bytes = small.capacity.memory_bytes - gib // 4
        await engine.scale(workload("b", resources=Resources(memory_bytes=rest_bytes)), 1)
        replicas = await until(engine, states(S.READY, S.READY))
        assert {each.key.deployment for each in replicas} == {"a", "b"}
        view = await pool(engine, lambda view: view.ready == 0)
        assert view.reason.startswith("1 fixed by the operator; 0 granted, the budget is 0 MiB")
        assert engine.capacity()["here"][1].memory_bytes <= small.capacity.memory_bytes
        async with asyncio.timeout(PATIENCE_S):  # it is a replica, or all of it goes
            while not runs(pid) and os.listdir(tmp_path / "standbys"):  # noqa: ASYNC110 - no news
                await asyncio.sleep(0.005)


async def test_a_standby_with_a_gpu_lives_only_while_no_replica_has_it(tmp_path: Path) -> None:
    async with running(tmp_path, warm()) as engine:
        gpu = workload("a", resources=Resources(gpus=1))
        await engine.scale(gpu, 1)
        await until(engine, states(S.READY))
        assert (await pool(engine, ready(0))).reason == "its GPUs are a replica's"
        await engine.scale(gpu, 0)
        await pool(engine, ready(1))
        await engine.scale(gpu, 1)
        (replica,) = await until(engine, states(S.READY))
        seen = tmp_path / "replicas" / replica.id / "work" / "seen.json"
        assert json.loads(seen.read_text())["WAS"] == "standby"
        assert json.loads(seen.read_text())["CUDA_VISIBLE_DEVICES"] == "0"


async def test_automatic_makes_none_after_a_single_start_and_off_ends_what_there_is(
    tmp_path: Path,
) -> None:
    automatic = StandbySettings(calm_s=0.0)
    async with running(tmp_path, warm(), automatic) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        view = await pool(engine, lambda view: bool(view.reason))
        assert (view.wanted, view.reason) == (0, "none wanted: 1 of 2 starts in 7 days")
        await engine.scale(workload("a"), 2)
        await pool(engine, lambda view: view.ready > 0)
        engine.standbys.set(StandbySettings(StandbyMode.OFF))
        view = await pool(engine, ready(0))
        assert view.reason == "0 fixed by the operator"


async def test_what_was_learnt_and_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "standbys.json").write_text('{"memory": {"x": 3}, "pools": []}')
    async with running(tmp_path, warm()) as engine:
        assert engine.standbys.views() == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"mode": "sometimes"}, "mode 'sometimes' is none of off, automatic, fixed"),
        ({"count": -1}, "count -1 is below 0"),
        ({"memory_share": 1.5}, "memory_share 1.5 is not within 0 and 1"),
        ({"unused_s": -1.0}, "unused_s -1 is not 0 or more seconds"),
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        StandbySettings(**wrong)  # type: ignore[arg-type]  # that is what is tested


async def test_of_an_organization_that_is_gone_no_standby_stays(tmp_path: Path) -> None:
    async with running(tmp_path, warm()) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await pool(engine, ready(1))
        (view,) = engine.standbys.views()
        engine.standbys.forget(["another"])
        assert engine.standbys.views() == [view]
        engine.standbys.forget([workload("a").key.organization])
        assert engine.standbys.views() == []
