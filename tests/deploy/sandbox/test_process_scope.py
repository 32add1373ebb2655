"""What holds a replica's processes together: by the kernel, and by watching."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.process import logfile
from hotplate.deploy.process.backoff import BackoffSettings
from hotplate.deploy.sandbox.cgroups import PIDS_MAX, Cgroup, Cgroups, group_name
from hotplate.deploy.sandbox.process_scope import over_capacity
from hotplate.deploy.sandbox.resource_limits import MEMORY_PAUSE_S, SHORTEST_PAUSE_S, UsagePace
from hotplate.deploy.workload import Resources
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import pid_of, runs, started, states, until
from tests.support.patience import PATIENCE_S
from tests.support.patience import until as eventually
from tests.support.processor import cpu_s

S = ReplicaState
MIB = 1 << 20
CALM = replace(QUICK, backoff=BackoffSettings(first_s=60.0))
SMALL = Resources(memory_bytes=64 * MIB)
SENTENCE = (
    "killed: it used more than its 64 MiB of memory (resources.memory); ask for more or use less"
)


def enclosing(
    directory: Path, kind: str, capacity_bytes: int = 8 << 30, shared_cpus: float = 0
) -> Cgroups:
    """Control groups, or none because nobody may make any."""
    if kind == "watched":
        return Cgroups(directory, capacity_bytes, root=directory / "no-such-root")
    cgroups = Cgroups(directory, capacity_bytes, shared_cpus=shared_cpus)
    if not cgroups.enforced:
        pytest.skip("this user may not make control groups here")
    return cgroups


@asynccontextmanager
async def running(directory: Path, cgroups: Cgroups) -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(host_in(directory, MACHINE, cgroups=cgroups), FakeRuntime(), MACHINE, CALM)
    async with started(engine):
        yield engine
    assert not any(folder.exists() for folder in cgroups.folders("any"))
    assert not any(folder.parent.exists() for folder in cgroups.folders("any"))


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


both = pytest.mark.parametrize("kind", ["cgroup", "watched"])


@both
@pytest.mark.parametrize("in_child", [False, True], ids=["itself", "its-child"])
async def test_a_replica_over_its_memory_is_killed_and_its_neighbour_lives(
    tmp_path: Path, kind: str, in_child: bool
) -> None:
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload("good", resources=SMALL), 1)
        await until(engine, states(S.READY))
        greedy = workload("greedy", resources=SMALL, eats_mib=1000, eats_in_child=in_child)
        await engine.scale(greedy, 1)
        found = await until(engine, states(S.READY, S.BACKOFF))
        (killed,) = [each for each in found if each.state is S.BACKOFF]
        assert killed.key.deployment == "greedy"
        assert killed.reason.startswith(SENTENCE)
        assert killed.log_tail[-1] == f"hotplate: {SENTENCE}"
        assert (await engine.logs(killed.id, 1)) == [f"hotplate: {SENTENCE}"]


@both
async def test_a_replica_within_its_memory_is_left_alone(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload(resources=SMALL, eats_mib=30), 1)
        (replica,) = await until(engine, states(S.READY))
        assert replica.restarts == 0


@both
async def test_the_memory_of_all_its_processes_is_read_and_counts_unless_it_asked_for_some(
    tmp_path: Path, kind: str
) -> None:
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload("asks", resources=SMALL, eats_mib=20), 1)
        await engine.scale(workload("free", eats_mib=100, eats_in_child=True), 1)
        await until(engine, states(S.READY, S.READY))
        await eventually(lambda: all(each.memory_bytes for each in engine.replicas()))
        sizes = {each.key.deployment: each.memory_bytes for each in engine.replicas()}
        assert 20 * MIB < sizes["asks"] < 60 * MIB
        await eventually(lambda: engine.replicas()[1].memory_bytes > 100 * MIB)
        taken_bytes = engine.capacity()["here"].taken.memory_bytes
        assert taken_bytes == 64 * MIB + engine.replicas()[1].memory_bytes


async def test_all_replicas_together_get_no_more_than_the_machine_gives(tmp_path: Path) -> None:
    cgroups = enclosing(tmp_path, "cgroup", capacity_bytes=96 * MIB)
    async with running(tmp_path, cgroups) as engine:
        await engine.scale(workload("modest", resources=SMALL), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload("boundless", eats_mib=1000), 1)
        found = await until(engine, states(S.READY, S.BACKOFF))
        (killed,) = [each for each in found if each.state is S.BACKOFF]
        assert killed.key.deployment == "boundless"
        assert killed.reason.startswith(
            "killed: this machine's memory ran out (replicas may use 96 MiB of it together); "
        )


@both
@pytest.mark.parametrize("daemon", ["marked", "bare"])
async def test_a_daemon_that_left_the_session_goes_with_its_replica(
    tmp_path: Path, kind: str, daemon: str
) -> None:
    if (kind, daemon) == ("watched", "bare"):
        pytest.skip("without control groups, what has shed its environment is not found")
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload(daemon=daemon), 1)
        (replica,) = await until(engine, states(S.READY))
        pid = int((tmp_path / f"replicas/{replica.id}/work/daemon").read_text())
        assert runs(pid)
        os.kill(pid_of(tmp_path, replica.id), signal.SIGKILL)
        await until(engine, states(S.BACKOFF))
        assert not runs(pid)


@both
async def test_nothing_of_a_fork_bomb_is_left(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload(bomb=3), 1)
        (replica,) = await until(engine, states(S.READY))
        pids = list(map(int, (tmp_path / f"replicas/{replica.id}/work/bombs").read_text().split()))
        assert len(pids) == 4**3
        await engine.scale(workload(), 0)
        await until(engine, states())
    assert not any(runs(pid) for pid in pids)


async def test_processes_are_limited_in_number(tmp_path: Path) -> None:
    cgroups = enclosing(tmp_path, "cgroup")
    async with running(tmp_path, cgroups) as engine:
        await engine.scale(workload(), 1)
        (replica,) = await until(engine, states(S.READY))
        limits = [folder / "pids.max" for folder in cgroups.folders(replica.id)]
        assert [int(path.read_text()) for path in limits if path.exists()] == [PIDS_MAX]


async def test_who_asked_for_more_cpus_gets_more_when_there_are_too_few(tmp_path: Path) -> None:
    """Two replicas that never pause, on one CPU: one asked for four times as much."""
    cgroups = enclosing(tmp_path, "cgroup", shared_cpus=2)
    async with running(tmp_path, cgroups) as engine:
        for name, cpus in {"much": 2, "little": 0.5}.items():
            await engine.scale(workload(name, resources=Resources(cpus), spins=True), 1)
        replicas = await until(engine, states(S.READY, S.READY))
        works = {each.key.deployment: tmp_path / f"replicas/{each.id}/work" for each in replicas}
        pids = {name: int((work / "spinning").read_text()) for name, work in works.items()}
        before = {name: cpu_s(pid) for name, pid in pids.items()}

        def used_s(name: str) -> float:
            return cpu_s(pids[name]) - before[name]

        async with asyncio.timeout(PATIENCE_S):
            while used_s("much") < 0.4:  # noqa: ASYNC110 - a CPU's time tells nobody
                await asyncio.sleep(0.05)
        assert used_s("much") > 2 * used_s("little")


@both
async def test_the_kernel_ends_replicas_before_the_platform(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, enclosing(tmp_path, kind)) as engine:
        await engine.scale(workload("limited", resources=SMALL), 1)
        await engine.scale(workload("free"), 1)
        replicas = await until(engine, states(S.READY, S.READY))
        scores = {each.key.deployment: oom_score(pid_of(tmp_path, each.id)) for each in replicas}
        assert oom_score(os.getpid()) < scores["limited"] < scores["free"]


async def test_the_next_engine_finds_the_groups_of_the_one_before(tmp_path: Path) -> None:
    """Also when it runs in another group itself and one replica has died meanwhile."""
    before = enclosing(tmp_path, "cgroup")
    first = LocalEngine(host_in(tmp_path, MACHINE, cgroups=before), FakeRuntime(), MACHINE, CALM)
    await first.start()
    await first.scale(workload("kept", daemon="bare"), 1)
    await first.scale(workload("lost", daemon="bare"), 1)
    replicas = await until(first, states(S.READY, S.READY))
    ids = {each.key.deployment: each.id for each in replicas}
    daemons = {
        name: int((tmp_path / f"replicas/{replica}/work/daemon").read_text())
        for name, replica in ids.items()
    }
    await first.close()
    lost = pid_of(tmp_path, ids["lost"])
    os.kill(lost, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, lost, os.WEXITED | os.WNOWAIT)

    elsewhere = enclosing(tmp_path, "watched")
    async with running(tmp_path, elsewhere) as engine:
        await engine.scale(workload("kept"), 1)
        await until(engine, states(S.READY))
        assert runs(daemons["kept"])
        os.kill(pid_of(tmp_path, ids["kept"]), signal.SIGKILL)
        await until(engine, states(S.BACKOFF))
        assert not runs(daemons["kept"])
    assert not runs(daemons["lost"])
    assert not any(f.exists() for name in ids.values() for f in before.folders(name))
    before.close()


def cut(log: Path) -> bool:
    return log.exists() and b"\nhotplate: this log had grown" in b"\n" + log.read_bytes()


async def test_a_flood_of_log_is_cut_while_the_replica_starts(tmp_path: Path) -> None:
    async with running(tmp_path, enclosing(tmp_path, "watched")) as engine:
        await engine.scale(workload(log_mib=100, ready_after_s=60), 1)
        (replica,) = await until(engine, states(S.STARTING))
        path = tmp_path / f"replicas/{replica.id}/log"
        async with asyncio.timeout(PATIENCE_S):
            while not cut(path):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.1)
        assert path.stat().st_size <= logfile.MAX_BYTES
        assert engine.replicas()[0].state is S.STARTING


def version_2(tmp_path: Path, *, controllers: str = "cpu memory pids") -> tuple[Path, Path]:
    """A file system like that of version 2, and the group in it that is for our replicas."""
    root = tmp_path / "root"
    home = root / "sys/fs/cgroup/box"
    ours = home / group_name(tmp_path)
    ours.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/box/hotplate-roles\n")
    for folder in (home, ours):
        (folder / "cgroup.controllers").write_text(f"{controllers}\n")
        for file in ("cgroup.subtree_control", "memory.max", "memory.swap.max", "memory.oom.group"):
            (folder / file).touch()
    return root, ours


def test_version_2_is_told_what_to_limit(tmp_path: Path) -> None:
    root, ours = version_2(tmp_path)
    cgroups = Cgroups(tmp_path, 5 << 30, root)
    assert cgroups.enforced
    assert cgroups.folders("a") == [ours / "a"]
    for folder in (ours.parent, ours):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (ours / "memory.max").read_text() == str(5 << 30)
    assert (ours / "memory.swap.max").read_text() == "0"


def test_version_2_weighs_by_the_cpus_that_were_asked_for(tmp_path: Path) -> None:
    root, ours = version_2(tmp_path)
    cgroups = Cgroups(tmp_path, 5 << 30, root, shared_cpus=2)
    for folder in (ours.parent, ours):
        assert (folder / "cgroup.subtree_control").read_text().startswith("+cpu")
    weights = []
    for cpus in (2, 0.5, 0, 0.001, 400):
        (ours / "cpu.weight").write_text("")
        cgroups.hand_over([ours], [], Resources(cpus))
        weights.append((ours / "cpu.weight").read_text())
    assert weights == ["200", "50", "100", "1", "10000"]


def test_where_cpus_are_reserved_nobody_weighs(tmp_path: Path) -> None:
    root, ours = version_2(tmp_path)
    (ours / "cpu.weight").touch()
    Cgroups(tmp_path, 5 << 30, root).hand_over([ours], [], Resources(2))
    assert (ours / "cpu.weight").read_text() == ""


def test_without_a_cpu_controller_memory_is_limited_all_the_same(tmp_path: Path) -> None:
    root, ours = version_2(tmp_path, controllers="memory pids")
    cgroups = Cgroups(tmp_path, 5 << 30, root, shared_cpus=2)
    assert cgroups.enforced
    for folder in (ours.parent, ours):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"
    cgroups.hand_over([ours], [], Resources(2, 1 << 30))
    assert (ours / "memory.max").read_text() == str(1 << 30)


def test_without_a_memory_controller_limits_are_watched(tmp_path: Path) -> None:
    root, _ = version_2(tmp_path, controllers="cpu pids")
    assert not Cgroups(tmp_path, 5 << 30, root).enforced


def test_version_2_says_whose_limit_it_was(tmp_path: Path) -> None:
    _, folder = version_2(tmp_path)
    group = Cgroup([folder], 64 * MIB, 5 << 30)
    for counts, sentence in {
        "oom 0\noom_kill 0\n": "",
        "oom 1\noom_kill 1\n": SENTENCE,
        "oom 0\noom_kill 1\n": over_capacity(5 << 30),
    }.items():
        (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 4\n{counts}")
        assert group.excess() == sentence


def test_what_grows_fast_is_looked_at_more_often() -> None:
    pace = UsagePace(MEMORY_PAUSE_S)
    assert pace.pause_s(0, 100, now=0.0) == MEMORY_PAUSE_S
    assert pace.pause_s(0, 100, now=1.0) == MEMORY_PAUSE_S
    assert pace.pause_s(20, 100, now=1.1) == pytest.approx(80 / 200 / 2)
    assert pace.pause_s(99, 100, now=1.2) == SHORTEST_PAUSE_S
    assert pace.pause_s(150, 100, now=1.3) == SHORTEST_PAUSE_S
    assert pace.pause_s(10, 100, now=1.4) == MEMORY_PAUSE_S
