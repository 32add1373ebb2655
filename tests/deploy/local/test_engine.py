"""The local engine with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.errors import PrepareFailed, UnknownReplica
from hotplate.deploy.local.ended_logs import ENDED_LOGS_KEPT
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.workload import Resources
from tests.support import patience
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import pid_of, runs, started, states, until, zombies
from tests.support.patience import PATIENCE_S

S = ReplicaState


@asynccontextmanager
async def running(
    directory: Path,
    runtime: FakeRuntime | None = None,
    machine: Machine = MACHINE,
    settings: LocalSettings = QUICK,
) -> AsyncIterator[LocalEngine]:
    """An engine; when the test is done nothing of it runs any more."""
    engine = LocalEngine(
        host_in(directory, machine), runtime or FakeRuntime(), machine, settings, random.Random(1)
    )
    async with started(engine):
        yield engine
    assert engine.replicas() == []
    assert os.listdir(directory / "replicas") == []
    assert not zombies()


async def test_a_wanted_replica_becomes_ready_with_all_its_phases(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        wanted = workload(env={"GREETING": "hello"}, ready_after_s=0.1)
        await engine.scale(wanted, 1)
        (replica,) = await until(engine, states(S.READY))

        assert replica.id.startswith("a-1-echo-")
        assert replica.self_report == {"answers": "anything"}
        assert replica.ready_at is not None
        assert replica.ready_at - replica.created_at > 0.1
        assert [phase.name for phase in replica.phases] == [
            "instance",
            "environment",
            "process",
            "init",
        ]
        assert all(phase.end is not None for phase in replica.phases)
        assert replica.wanted_at == replica.created_at
        shares_s = [phase.share_s for phase in replica.phases]
        assert sum(shares_s) == pytest.approx(replica.ready_at - replica.created_at)

        seen = json.loads((tmp_path / f"replicas/{replica.id}/work/seen.json").read_text())
        assert seen["GREETING"] == "hello"
        assert seen["CUDA_VISIBLE_DEVICES"] == ""
        assert seen["HOTPLATE_REPLICA_DIR"] == str(tmp_path / f"replicas/{replica.id}/work")
        assert "HOME" not in seen, "the environment is the runtime's, not ours"


async def test_a_replica_sees_only_the_gpu_that_it_was_given(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await engine.scale(workload(resources=Resources(gpus=1)), 1)
        (replica,) = await until(engine, states(S.READY))
        seen = json.loads((tmp_path / f"replicas/{replica.id}/work/seen.json").read_text())
        assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("0", "PCI_BUS_ID")
        node = engine.capacity()["here"]
        assert (node.in_all.gpus, node.taken.gpus, node.labels) == (1, 1, {"gpu": "fake"})


async def test_shared_cpus_are_promised_several_times(tmp_path: Path) -> None:
    """And what is promised is told beside those that there are."""
    async with running(tmp_path, machine=replace(MACHINE, cpu_overcommit=1.5)) as engine:
        await engine.scale(workload(resources=Resources(3)), 3)
        await until(engine, states(S.PENDING, S.READY, S.READY))
        node = engine.capacity()["here"]
        assert (node.in_all.cpus, node.taken.cpus, node.cpus) == (6, 6, 4)


async def test_a_replica_that_crashes_pauses_and_starts_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    async with running(tmp_path) as engine:
        await engine.scale(workload(broken=str(broken), lines=30), 1)
        (replica,) = await until(engine, states(S.BACKOFF))
        assert replica.reason.startswith("exited with code 3 after ")
        assert replica.reason.endswith("; its log ends with: it is broken")
        assert len(replica.log_tail) == 20
        assert replica.log_tail[-1] == "it is broken"
        assert engine.capacity()["here"][1].memory_bytes == 0, "its place is free meanwhile"

        (starting,) = await until(engine, states(S.STARTING))
        assert "; before, exited with code 3 after " in starting.reason
        broken.unlink()
        (again,) = await until(engine, states(S.READY))
        assert again.id == replica.id
        assert again.restarts >= 1
        assert again.wanted_at > replica.wanted_at == replica.created_at
        assert again.cold_start_s == pytest.approx(sum(p.share_s for p in again.phases))


@pytest.mark.parametrize("end", ["stopped", "dead"])
async def test_what_a_replica_has_made_can_be_kept_once_it_has_ended(
    tmp_path: Path, end: str
) -> None:
    runtime = FakeRuntime()
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        assert not runtime.kept
        if end == "dead":
            os.kill(pid_of(tmp_path, replica.id), signal.SIGKILL)
            await until(engine, states(S.BACKOFF))
        else:
            await engine.scale(workload(), 0)
            await until(engine, states())
        assert runtime.kept[0] == ["seen.json"]


async def test_a_killed_replica_is_seen_at_once(tmp_path: Path) -> None:
    calm = replace(QUICK, backoff=BackoffSettings(first_s=60.0))
    async with running(tmp_path, settings=calm) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        os.kill(pid_of(tmp_path, replica.id), signal.SIGKILL)
        (replica,) = await until(engine, states(S.BACKOFF), timeout_s=1.0)
        assert replica.reason.startswith("killed by signal 9 after ")
        assert replica.address == ""


async def test_an_environment_that_cannot_be_built_fails_for_good(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.failure = PrepareFailed("package 'torhc' is not known", log=("resolving", "no torhc"))
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.FAILED))
        assert replica.reason == "package 'torhc' is not known"
        assert replica.log_tail == ("resolving", "no torhc")
        assert await engine.logs(replica.id, 1) == ["no torhc"]

        await engine.scale(workload(), 0)
        await until(engine, states())
        assert len(runtime.prepared) == 1


@pytest.mark.parametrize("failure", [PrepareFailed("no answer", retry=True), OSError("disk full")])
async def test_a_failure_that_may_pass_is_tried_again(tmp_path: Path, failure: Exception) -> None:
    runtime = FakeRuntime()
    runtime.failure = failure
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.BACKOFF))
        assert str(failure) in replica.reason
        runtime.failure = None
        await until(engine, states(S.READY))


@pytest.mark.parametrize("hangs", [True, False], ids=["preparing", "starting"])
async def test_a_replica_that_is_not_ready_in_time_is_killed(tmp_path: Path, hangs: bool) -> None:
    runtime = FakeRuntime()
    runtime.hangs = hangs
    slow = workload(cold_start_timeout_s=0.3, ready_after_s=60, ignores_sigterm=True)
    async with running(tmp_path, runtime) as engine:
        await engine.scale(slow, 1)
        (replica,) = await until(engine, states(S.BACKOFF))
        assert replica.reason.startswith("not ready within its cold_start_timeout of 0.3 s; ")
        if not hangs:
            assert not runs(pid_of(tmp_path, replica.id))


async def test_a_start_that_hangs_says_when_it_will_be_ended(tmp_path: Path) -> None:
    hangs = workload(cold_start_timeout_s=900, ready_after_s=1000)
    async with running(tmp_path) as engine:
        await engine.scale(hangs, 1)
        (replica,) = await until(engine, lambda found: any(" yet; " in r.reason for r in found))
        ended = re.search(r"unless it is ready by (.*) UTC \(.* of 900 s\)", replica.reason)
        assert ended is not None, replica.reason
        at = datetime.fromisoformat(ended[1]).replace(tzinfo=UTC).timestamp()
        assert replica.created_at < at - 900 + 1 < replica.created_at + PATIENCE_S


async def test_a_start_whose_check_is_refused_says_with_what(tmp_path: Path) -> None:
    refuses = workload(cold_start_timeout_s=2.0, refuses=True)
    async with running(tmp_path) as engine:
        await engine.scale(refuses, 1)
        (replica,) = await until(engine, lambda found: any("HTTP" in r.reason for r in found))
        assert "not ready yet (its readiness check answers HTTP 503); it" in replica.reason
        (replica,) = await until(engine, states(S.BACKOFF))
        assert "of 2 s (its readiness check answers HTTP 503); check" in replica.reason


async def test_a_replica_says_that_it_waits_for_a_build_and_where_its_log_is(
    tmp_path: Path,
) -> None:
    runtime = FakeRuntime()
    runtime.hangs, runtime.builds = True, "/somewhere/build.log"
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, lambda found: any(each.build_log for each in found))
        assert (replica.state, replica.build_log) == (S.STARTING, "/somewhere/build.log")
        assert replica.reason == "its Python environment is being built"


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.program = "/nowhere/python"
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.BACKOFF))
        assert "; its log ends with: /nowhere/python cannot be started in " in replica.reason


async def test_one_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = workload(ignores_sigterm=True, child=True, stop_grace_s=0.2)
    async with running(tmp_path) as engine:
        await engine.scale(stubborn, 1)
        (replica,) = await until(engine, states(S.READY))
        pid = pid_of(tmp_path, replica.id)
        child = int((tmp_path / f"replicas/{replica.id}/work/child").read_text())
        assert runs(child)

        await engine.scale(stubborn, 0)
        await until(engine, states(S.STOPPING))
        assert runs(pid)
        await until(engine, states())
        assert not runs(pid)
        assert not runs(child)


async def test_scaling_down_spares_those_that_serve_and_takes_the_drained(tmp_path: Path) -> None:
    slots = replace(MACHINE, cpus=3.0)
    one_cpu = workload(resources=Resources(cpus=1))
    async with running(tmp_path, machine=slots) as engine:
        await engine.scale(one_cpu, 5)
        before = await until(engine, states(S.READY, S.READY, S.READY, S.PENDING, S.PENDING))
        ready = {each.id for each in before if each.state is S.READY}

        await engine.scale(one_cpu, 3)
        after = await until(engine, states(S.READY, S.READY, S.READY))
        assert {each.id for each in after} == ready

        drained = min(ready)
        await engine.scale(one_cpu, 2, remove={drained})
        after = await until(engine, states(S.READY, S.READY))
        assert {each.id for each in after} == ready - {drained}


async def test_a_drained_replica_is_replaced_when_the_count_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await engine.scale(workload(), 1)
        (old,) = await until(engine, states(S.READY))
        await engine.scale(workload(), 1, remove={old.id})
        (new,) = await until(engine, lambda found: states(S.READY)(found) and found[0].id != old.id)
        assert new.id != old.id


async def test_a_replica_waits_with_its_reason_until_there_is_room(tmp_path: Path) -> None:
    big = Resources(cpus=3)
    async with running(tmp_path) as engine:
        await engine.scale(workload("first", resources=big), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload("second", resources=big), 1)
        found = await until(engine, states(S.READY, S.PENDING))
        (waiting,) = [each for each in found if each.state is S.PENDING]
        assert waiting.reason == (
            "needs 3.0 CPUs: 3.0 of 4.0 are taken by acme/first@1/Echo (1 replica); "
            "it waits for room"
        )
        await engine.scale(workload("first", resources=big), 0)
        (replica,) = await until(engine, states(S.READY))
        assert replica.id == waiting.id


async def test_an_unready_replica_is_shown_and_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        mark = tmp_path / f"replicas/{replica.id}/work/unready"
        mark.touch()
        (replica,) = await until(engine, states(S.UNREADY))
        assert "HTTP 503" in replica.reason
        mark.unlink()
        (replica,) = await until(engine, states(S.READY))
        assert (replica.reason, replica.restarts) == ("", 0)


def restarted(replicas: Sequence[Replica]) -> bool:
    """Whether the one replica is ready again after it had ended once."""
    return [(each.state, each.restarts) for each in replicas] == [(S.READY, 1)]


IMPATIENT = replace(QUICK, probe=replace(QUICK.probe, timeout_s=0.05, silence_margin_s=0.1))


async def test_a_replica_that_answers_nothing_any_more_is_replaced(tmp_path: Path) -> None:
    """SIGTERM cannot reach what blocks its event loop, so there is no grace for it."""
    async with running(tmp_path, settings=IMPATIENT) as engine:
        stubborn = workload(request_timeout_s=0.3, ignores_sigterm=True, stop_grace_s=0.2)
        await engine.scale(stubborn, 1)
        (replica,) = await until(engine, states(S.READY))
        (tmp_path / f"replicas/{replica.id}/work/deaf").touch()
        await until(engine, states(S.UNREADY))
        (replica,) = await until(engine, restarted)
        said = await engine.logs(replica.id, 2)
        assert said[0].startswith("hotplate: ended: it answered no check for ")
        assert "(traffic.timeout of 0.3 s); move what blocks its event loop" in said[0]
        assert replica.log_tail[-1] == said[0]


async def test_one_that_answers_in_time_again_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path, settings=IMPATIENT) as engine:
        await engine.scale(workload(request_timeout_s=30.0), 1)
        (replica,) = await until(engine, states(S.READY))
        deaf = tmp_path / f"replicas/{replica.id}/work/deaf"
        deaf.touch()
        await until(engine, states(S.UNREADY))
        deaf.unlink()
        (replica,) = await until(engine, states(S.READY))
        assert replica.restarts == 0


async def test_one_that_exits_cleanly_is_started_again(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        (tmp_path / f"replicas/{replica.id}/work/done").touch()
        (ended,) = await until(engine, states(S.BACKOFF))
        assert ended.reason.startswith("exited with code 0 after ")
        assert ended.reason.endswith("; its log ends with: that was all")
        await until(engine, restarted)


async def test_logs_outlive_their_replica_but_not_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        ended = []
        for _ in range(2):
            await engine.scale(workload(lines=3), 1)
            (replica,) = await until(engine, states(S.READY))
            await engine.scale(workload(), 0)
            await until(engine, states())
            ended.append(replica.id)
        assert await engine.logs(ended[0], 2) == ["line 1", "line 2"]

        for number in range(ENDED_LOGS_KEPT - 1):
            (tmp_path / f"ended/other-{number}.log").touch()
        await engine.scale(workload(), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload(), 0)
        await until(engine, states())
        with pytest.raises(UnknownReplica):
            await engine.logs(ended[0], 2)
        with pytest.raises(UnknownReplica):
            await engine.logs("../replicas", 2)


async def test_no_descriptor_and_no_process_leaks(tmp_path: Path) -> None:
    def open_now() -> int:
        return len(os.listdir("/proc/self/fd"))

    left = tmp_path / "leavings"  # a thread has descriptors while it removes what is there
    before: list[int] = []
    async with running(tmp_path) as engine:
        for _ in range(6):
            await engine.scale(workload(), 5)
            await until(engine, states(*[S.READY] * 5))
            await engine.scale(workload(), 0)
            await until(engine, states())
            await patience.until(lambda: not os.listdir(left))
            if not before:
                before.append(open_now())
            await patience.until(lambda: open_now() <= before[0])
        assert not zombies()


async def test_a_replica_stopped_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        for _ in range(20):
            await engine.scale(workload(), 3)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await engine.scale(workload(), 0)
        await until(engine, states())


async def test_a_replica_stopped_while_its_folder_is_emptied_leaves_nothing(
    tmp_path: Path,
) -> None:
    """What an earlier attempt wrote is removed in a thread, which nobody can interrupt."""
    (tmp_path / "broken").touch()
    async with running(tmp_path) as engine:
        for _ in range(4):  # of two that remove the same folders, either may be the one that fails
            await stop_while_its_folder_is_emptied(engine, tmp_path)
            assert os.listdir(tmp_path / "replicas") == []


async def stop_while_its_folder_is_emptied(engine: LocalEngine, directory: Path) -> None:
    await engine.scale(workload(broken=str(directory / "broken")), 1)
    (replica,) = await until(engine, states(S.BACKOFF))
    work = directory / f"replicas/{replica.id}/work"
    for number in range(500):
        (work / str(number)).mkdir()
    await until(engine, states(S.STARTING))
    await patience.until(lambda: len(os.listdir(work)) < 500)
    await engine.scale(workload(), 0)
    await until(engine, states())


async def test_the_runtime_forgets_a_replica_that_never_had_a_process(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.hangs, runtime.builds = True, "its build"
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 1)
        await until(engine, lambda replicas: any(each.build_log for each in replicas))
        await engine.scale(workload(), 0)
        await until(engine, states())
        assert runtime.kept == [[]]
