"""As many replicas as fit by what is their own of the memory, with real forks within real walls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.machine import Machine
from hotplate.deploy.process.memory import Memory, memory_of
from hotplate.deploy.standbys import StandbySettings
from hotplate.deploy.workload import Resources
from tests.deploy.local.standby.test_pools import pool, proc, ready
from tests.support.deploy.fake_runtime import FakeRuntime, workload
from tests.support.deploy.running import pid_of, runs, states, until
from tests.support.deploy.templates import forking, template_pid, templated
from tests.support.patience import until as eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")
S = ReplicaState
MIB = 1 << 20
HOARD_MIB = 100
MACHINE = Machine("here", cpus=64.0, memory_bytes=800 * MIB)
MOST_BYTES = MACHINE.capacity.memory_bytes
SHARE = StandbySettings(calm_s=0.0, memory_share=1.0)
FORKS = 10
"""Of 100 MiB each: of such processes that share nothing, seven fill the machine."""


def hoarding() -> FakeRuntime:
    """The template has memory in use, which its forks share until they write to it."""
    return forking(TEMPLATE=f"sys.hoard = bytearray(b'x') * ({HOARD_MIB} << 20)")


async def forks_of(engine: LocalEngine, directory: Path, count: int) -> Sequence[Replica]:
    """So many of a workload, ready and read, beside the one that was first and started cold."""
    await engine.scale(workload("a"), 1)
    await until(engine, states(S.READY))
    await pool(engine, lambda view: ready(1)(view) and view.templates == 1)
    await engine.scale(workload("b"), count)
    found = await until(engine, states(*[S.READY] * (count + 1)))
    own_bytes = memory(directory, found).own_bytes
    await eventually(lambda: abs(taken_bytes(engine) - own_bytes) < 12 * MIB)
    return [each for each in found if each.key.deployment == "b"]


def memory(directory: Path, replicas: Iterable[Replica]) -> Memory:
    """Of all that runs, read anew."""
    pids = [pid_of(directory, each.id) for each in replicas]
    return memory_of([*pids, template_pid(directory)])


def taken_bytes(engine: LocalEngine) -> int:
    (node,) = engine.capacity().values()
    return node.taken.memory_bytes


def use_hoard(directory: Path, replicas: Iterable[Replica], how: str) -> list[Path]:
    """Have them write to it, or read it; the files that are there once they have."""
    works = [directory / "replicas" / each.id / "work" for each in replicas]
    for work in works:
        (work / how).touch()
    return [work / "hoarded" for work in works]


async def test_a_machine_takes_as_many_forks_as_fit_and_waits_once_they_have_written(
    tmp_path: Path,
) -> None:
    async with templated(tmp_path, hoarding(), SHARE, MACHINE) as engine:
        forks = await forks_of(engine, tmp_path, FORKS)
        found = memory(tmp_path, engine.replicas())
        assert found.alone_bytes > MOST_BYTES + 200 * MIB, "so many do not fit by what is resident"
        assert found.own_bytes < 300 * MIB
        view = await pool(engine, lambda view: view.forks == FORKS)
        assert view.templates == 1
        assert all(0 < each.memory_bytes < 40 * MIB for each in engine.replicas())

        written = use_hoard(tmp_path, forks[:4], "writes")
        await eventually(lambda: all(path.exists() for path in written))
        await eventually(lambda: taken_bytes(engine) > 450 * MIB)
        await engine.scale(workload("c", resources=Resources(memory_bytes=400 * MIB)), 1)
        found_all = await until(engine, lambda all: any(each.state is S.PENDING for each in all))
        (waiting,) = [each for each in found_all if each.state is S.PENDING]
        assert "needs 0.4 GiB of memory" in waiting.reason
        assert waiting.reason.endswith("it waits for room")
        assert memory(tmp_path, (each for each in found_all if each != waiting)).own_bytes < (
            MOST_BYTES
        )

        await engine.scale(workload("b"), FORKS - 4, remove=[each.id for each in forks[:4]])
        await until(engine, states(*[S.READY] * (FORKS - 4 + 2)))


async def test_a_limit_is_hard_and_counts_what_a_fork_writes_not_what_it_shares(
    tmp_path: Path,
) -> None:
    limited = Resources(memory_bytes=60 * MIB)
    async with templated(tmp_path, hoarding(), SHARE, MACHINE) as engine:
        await forks_of(engine, tmp_path, 1)
        await engine.scale(workload("c", resources=limited), 2)
        found = await until(engine, states(*[S.READY] * 4))
        reads, writes = (each for each in found if each.key.deployment == "c")
        (done,) = use_hoard(tmp_path, [reads], "reads")
        use_hoard(tmp_path, [writes], "writes")
        found = await until(engine, lambda all: any(each.restarts for each in all))
        (again,) = [each for each in found if each.restarts]
        assert again.id == writes.id
        assert "it used more than its 60 MiB of memory" in (await engine.logs(again.id, 1))[0]
        await eventually(done.exists)
        assert taken_bytes(engine) >= 2 * 60 * MIB, "they are promised what they have asked for"


async def test_where_all_write_those_go_first_that_have_asked_for_nothing(tmp_path: Path) -> None:
    limited = Resources(memory_bytes=200 * MIB)
    async with templated(tmp_path, hoarding(), SHARE, MACHINE) as engine:
        forks = await forks_of(engine, tmp_path, FORKS)
        await engine.scale(workload("c", resources=limited), 1)
        found = await until(engine, states(*[S.READY] * (FORKS + 2)))
        (promised,) = [each for each in found if each.key.deployment == "c"]
        pid = pid_of(tmp_path, promised.id)
        assert proc(pid, "oom_score_adj").strip() == "500"
        (done,) = use_hoard(tmp_path, [promised], "writes")
        await eventually(done.exists)
        use_hoard(tmp_path, forks, "writes")
        found = await until(engine, lambda all: any(each.restarts for each in all))
        assert all(each.key.deployment == "b" for each in found if each.restarts)
        (killed, *_) = [each for each in found if each.restarts]
        assert "this machine's memory ran out" in " ".join(await engine.logs(killed.id, 3))
        assert runs(pid)


async def test_a_template_takes_its_share_and_all_of_it_once_its_forks_have_ended(
    tmp_path: Path,
) -> None:
    async with templated(tmp_path, hoarding(), SHARE, MACHINE) as engine:
        await forks_of(engine, tmp_path, 3)
        view = await pool(engine, lambda view: view.memory_bytes < 50 * MIB)
        assert engine.footprint_bytes(workload("b").key) < 60 * MIB
        assert engine.footprint_bytes(workload("c").key) == 0, "not known"
        await engine.scale(workload("b"), 0)
        await pool(engine, lambda again: again.memory_bytes > 100 * MIB)
        assert template_pid(tmp_path)
        assert view.templates == 1


async def test_a_fork_that_fails_waits_where_there_is_no_room_for_it_alone(tmp_path: Path) -> None:
    runtime = hoarding()
    assert runtime.warm is not None
    runtime.warm["FORKS"] = "if os.path.exists('broken'): os._exit(0)"
    async with templated(tmp_path, runtime, SHARE, MACHINE) as engine:
        await forks_of(engine, tmp_path, 4)
        left_bytes = MOST_BYTES - taken_bytes(engine)
        filler = Resources(memory_bytes=left_bytes - 40 * MIB)
        await engine.scale(workload("c", resources=filler), 1)
        await until(engine, states(*[S.READY] * 6))
        (template,) = os.listdir(tmp_path / "standbys")
        broken = tmp_path / "standbys" / template / "work/broken"
        broken.touch()
        await engine.scale(workload("b"), 5)
        await until(engine, lambda all: any("of memory:" in each.reason for each in all))
        await engine.scale(workload("c"), 0)
        await until(engine, states(*[S.READY] * 6))
