"""Templates fork replicas, with real processes within real walls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.standby import pools
from hotplate.deploy.local.standby.pool import MOST_SPENT
from hotplate.deploy.local.standby.pools import CORES
from hotplate.deploy.process.procfs import numbers_of
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from hotplate.deploy.workload import Resources
from tests.deploy.local.standby.test_pools import pool, proc, ready
from tests.support.deploy.fake_runtime import MACHINE, workload
from tests.support.deploy.running import pid_of, runs, states, until
from tests.support.deploy.templates import AUTOMATIC, forking, template_pid, templated
from tests.support.patience import until as eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root gives programs other ids")
S = ReplicaState
MIB = 1 << 20
LIMIT = "memory.limit_in_bytes"
"""Of a control group of version 1."""


async def begun(engine: LocalEngine) -> Replica:
    """The first replica, which has started cold, once there is a template."""
    await engine.scale(workload("a"), 1)
    (first,) = await until(engine, states(S.READY))
    await pool(engine, lambda view: ready(1)(view) and view.templates == 1)
    return first


async def more(engine: LocalEngine, count: int, **given: object) -> Sequence[Replica]:
    """So many ready replicas of another workload."""
    await engine.scale(workload("b", **given), count)
    found = await until(engine, states(*[S.READY] * (count + 1)))
    return [each for each in found if each.key.deployment == "b"]


def seen(directory: Path, replica: Replica) -> dict[str, str]:
    """The variables of its process."""
    found: dict[str, str] = json.loads(
        (directory / "replicas" / replica.id / "work/seen.json").read_text()
    )
    return found


def was_forked(directory: Path, replica: Replica) -> bool:
    return seen(directory, replica).get("WAS") == "fork"


async def test_a_template_is_made_after_the_first_start_and_forks_those_that_follow(
    tmp_path: Path,
) -> None:
    async with templated(tmp_path, forking()) as engine:
        first = await begun(engine)
        assert not was_forked(tmp_path, first)
        limited = Resources(memory_bytes=64 * MIB)
        forks = await more(engine, 3, resources=limited, env={"GREETING": "hello"})
        assert all(was_forked(tmp_path, each) for each in forks)
        assert {seen(tmp_path, each)["GREETING"] for each in forks} == {"hello"}
        pids = [pid_of(tmp_path, each.id) for each in forks]
        template = template_pid(tmp_path)
        assert len({os.stat(f"/proc/{pid}").st_uid for pid in (*pids, template)}) == 4
        assert len({os.readlink(f"/proc/{pid}/ns/pid") for pid in (*pids, template)}) == 4
        assert [proc(pid, "oom_score_adj").strip() for pid in pids] == ["500"] * 3
        for each, pid in zip(forks, pids, strict=True):
            assert f"/{each.id}\n" in proc(pid, "cgroup")
            assert len(numbers_of(pid)) == 3
        view = await pool(engine, lambda view: view.forks == 3)
        assert (view.templates, view.unforkable, view.starts, view.hits) == (1, "", 4, 3)
        assert template_pid(tmp_path) == template, "it stays"


async def test_of_many_starts_at_once_most_wait_for_a_template_that_is_made_for_them(
    tmp_path: Path,
) -> None:
    never_calm = replace(AUTOMATIC, calm_s=3600.0)
    async with templated(tmp_path, forking(), never_calm) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload("b"), CORES + 8)
        await until(engine, states(*[S.READY] * (CORES + 9)))
        many = [each for each in engine.replicas() if each.key.deployment == "b"]
        forked = [each for each in many if was_forked(tmp_path, each)]
        assert CORES <= len(many) - len(forked) < len(many), "the first have started cold"


@pytest.mark.parametrize(
    "knobs",
    [
        {"UNFORKABLE": "module 'a' has left a thread"},
        {"TEMPLATE": "os._exit(1)"},
        {"TEMPLATE": "signal.pause()"},
    ],
)
async def test_starts_that_wait_for_a_template_that_cannot_be_had_go_on_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, str]
) -> None:
    monkeypatch.setattr(pools, "LONGEST_WAIT_S", 1.0)
    never_calm = replace(AUTOMATIC, calm_s=3600.0)
    async with templated(tmp_path, forking(**knobs), never_calm) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload("b"), CORES + 8)
        await until(engine, states(*[S.READY] * (CORES + 9)))
        assert not any(was_forked(tmp_path, each) for each in engine.replicas())


async def test_a_template_and_its_forks_have_nothing_open_but_what_is_their_own(
    tmp_path: Path,
) -> None:
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        (fork,) = await more(engine, 1)
        template, pid = template_pid(tmp_path), pid_of(tmp_path, fork.id)
        assert open_in(template) == {"socket": 1, "/memfd": 1}, "its channel, and its job"
        await eventually(lambda: open_in(pid)["socket"] == 1)  # its listener


def open_in(pid: int) -> Counter[str]:
    """The kinds of what it has open, but for files."""
    kinds: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            kinds[os.readlink(link).partition(":")[0]] += 1
    return Counter({kind: count for kind, count in kinds.items() if kind[:2] in ("so", "/m", "pi")})


async def test_a_fork_that_ends_says_with_what_and_its_siblings_live(tmp_path: Path) -> None:
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        (sibling,) = await more(engine, 1)
        broken = tmp_path / "broken"
        broken.touch()
        await engine.scale(workload("c", broken="/usr"), 1)
        found = await until(engine, states(S.READY, S.READY, S.BACKOFF))
        (ended,) = (each for each in found if each.key.deployment == "c")
        assert "exited with code 3" in ended.reason
        os.kill(pid := pid_of(tmp_path, sibling.id), signal.SIGKILL)
        await until(engine, lambda found: any(each.restarts for each in found))
        await engine.scale(workload("c"), 0)
        await until(engine, states(S.READY, S.READY))
        assert not runs(pid)


async def test_a_fork_over_its_limit_is_killed_alone(tmp_path: Path) -> None:
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        limited = Resources(memory_bytes=64 * MIB)
        (sibling,) = await more(engine, 1, resources=limited)
        pid = pid_of(tmp_path, sibling.id)
        await engine.scale(workload("c", resources=limited, eats_mib=100), 1)
        found = await until(engine, states(S.READY, S.READY, S.BACKOFF))
        (killed,) = (each for each in found if each.key.deployment == "c")
        assert "it used more than its 64 MiB of memory" in killed.reason
        assert runs(pid)
        assert runs(template_pid(tmp_path))
        assert engine.standbys.views()[0].forks == 2


async def test_what_says_that_it_cannot_be_forked_is_not(tmp_path: Path) -> None:
    why = "a module left a thread"
    async with templated(tmp_path, forking(UNFORKABLE=why)) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        view = await pool(engine, lambda view: bool(view.unforkable))
        await more(engine, 1)
        view = await pool(engine, lambda view: view.ready > 0)
        assert (view.unforkable, view.templates) == (why, 0)
        forks = await more(engine, 2)
        assert sorted(seen(tmp_path, each).get("WAS", "") for each in forks) == ["", "standby"]


async def test_an_environment_whose_warm_processes_are_of_no_use_has_none(tmp_path: Path) -> None:
    why = "a module cannot be imported here"
    async with templated(tmp_path, forking(UNUSABLE=why)) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        view = await pool(engine, lambda view: bool(view.unforkable))
        assert (view.unforkable, view.reason) == (why, why)
        forks = await more(engine, 3)
        assert not any("WAS" in seen(tmp_path, each) for each in forks)
        (view,) = engine.standbys.views()
        assert (view.ready, view.making, view.wanted, view.starts) == (0, 0, 0, 4)


async def test_an_environment_that_is_built_anew_has_another_template(tmp_path: Path) -> None:
    runtime = forking()
    async with templated(tmp_path, runtime) as engine:
        await begun(engine)
        (fork,) = await more(engine, 1)
        template, pid = template_pid(tmp_path), pid_of(tmp_path, fork.id)
        runtime.warm = {"VIRTUAL_ENV": "/another/place"}
        await engine.scale(workload("c"), 1)
        found = await until(engine, states(*[S.READY] * 3))
        assert [was_forked(tmp_path, each) for each in found if each.key.deployment == "c"] == [
            False
        ]
        await eventually(lambda: not runs(template))
        assert runs(pid), "what it has forked goes on"
        await pool(engine, lambda view: ready(1)(view) and view.templates == 1)
        assert template_pid(tmp_path) != template
        await engine.scale(workload("d"), 1)
        found = await until(engine, states(*[S.READY] * 4))
        assert [was_forked(tmp_path, each) for each in found if each.key.deployment == "d"] == [
            True
        ]


async def test_a_replica_of_several_processes_is_forked_or_starts_cold(tmp_path: Path) -> None:
    """An environment without a template has standbys for the others alone."""
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        (fork,) = await more(engine, 1, workers=2)
        assert was_forked(tmp_path, fork)
    async with templated(tmp_path / "other", forking(UNFORKABLE="why")) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        await engine.scale(workload("c"), 1)
        await until(engine, states(S.READY, S.READY))
        view = await pool(engine, lambda view: view.ready > 0 and not view.making)
        await engine.scale(workload("b", workers=2), 1)
        found = await until(engine, states(S.READY, S.READY, S.READY))
        (cold,) = (each for each in found if each.key.deployment == "b")
        assert seen(tmp_path / "other", cold).get("WAS") is None
        (after,) = engine.standbys.views()
        assert (after.starts, after.hits, after.ready) == (view.starts, view.hits, view.ready)


@pytest.mark.parametrize("mode", [StandbyMode.FIXED, StandbyMode.OFF])
async def test_only_the_automatic_mode_has_templates(tmp_path: Path, mode: StandbyMode) -> None:
    async with templated(tmp_path, forking(), StandbySettings(mode, calm_s=0.0)) as engine:
        await engine.scale(workload("a"), 1)
        await until(engine, states(S.READY))
        if mode == StandbyMode.FIXED:
            await pool(engine, ready(1))
        (second,) = await more(engine, 1)
        was = seen(tmp_path, second).get("WAS", "")
        assert was == ("standby" if mode == StandbyMode.FIXED else "")
        view = await pool(engine, lambda view: view.starts == 2)
        assert (view.templates, view.unforkable) == (0, f"mode is {mode}")


async def test_another_mode_ends_the_template_and_not_its_forks(tmp_path: Path) -> None:
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        (fork,) = await more(engine, 1)
        template, pid = template_pid(tmp_path), pid_of(tmp_path, fork.id)
        engine.standbys.set(StandbySettings(StandbyMode.OFF))
        await eventually(lambda: not runs(template))
        assert runs(pid)
        os.kill(pid, signal.SIGKILL)
        found = await until(engine, states(S.READY, S.BACKOFF))
        assert "SIGKILL" in " ".join(each.reason for each in found)


FALSE_NAME = """
enter(received[1:5])
if os.fork():
    os._exit(0)
first = struct.pack("iII", 1, 0, 0)
with socket.socket(fileno=received[0]) as said:
    said.sendmsg([b'{"forked": 1}\\n'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, first)])
    signal.pause()
"""
"""It says that it is the first process there."""
NOT_FORKED = {
    "rubbish": ({"SAYS": "b'[]\\n'"}, "it wrote something other than a JSON object"),
    "without end": ({"SAYS": "b'x' * (1 << 17)"}, "it wrote a line of more than"),
    "nothing said": ({"SAYS": "b'{}\\n'"}, "it answered something else"),
    "no walls": (
        {"FORKS": "introduce(received[0]); signal.pause()"},
        "its template is ended: it has forked what was not within its walls",
    ),
    "half of its walls": (
        {"FORKS": "enter(received[1:2]); introduce(received[0]); signal.pause()"},
        "its template is ended: it has forked what was not within its walls",
    ),
    "two": (
        {"SAYS": "line if os.fork() else signal.pause()"},
        "more than one process was forked",
    ),
    "a false name": (
        {"FORKS": FALSE_NAME},
        "its template is ended: it has forked what was not within its walls",
    ),
    "it ends": ({"FORKS": "os._exit(0)"}, "it ended"),
    "the template ends": ({"FORKS": "os.kill(os.getppid(), 9); signal.pause()"}, "it ended"),
    "nobody": ({"SAYS": "os._exit(0)"}, "it ended"),
    "stopped": (
        {"FORKS": "os.kill(os.getppid(), signal.SIGSTOP); signal.pause()"},
        "its template is ended: it is stopped",
    ),
    "out of processes": (
        {"FORKS": "raise OSError(11, 'Resource temporarily unavailable')"},
        "it could not be forked: [Errno 11] Resource temporarily unavailable",
    ),
    "twice": (
        {"SAYS": "line * 2"},
        "it answered something else",
    ),
}


@pytest.mark.parametrize(("knobs", "why"), NOT_FORKED.values(), ids=NOT_FORKED.keys())
async def test_a_replica_that_cannot_be_forked_starts_cold(
    tmp_path: Path, knobs: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with templated(tmp_path, forking(**knobs)) as engine:
        await begun(engine)
        began = asyncio.get_running_loop().time()
        (cold,) = await more(engine, 1)
        assert asyncio.get_running_loop().time() - began < 5
        assert not was_forked(tmp_path, cold)
        assert cold.restarts == 0
        assert f"starts cold, its standby did not: {why}" in caplog.text
        assert engine.standbys.views()[0].forks == 0


async def test_a_stopped_template_costs_nobody_time_and_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        template = template_pid(tmp_path)
        os.kill(template, signal.SIGSTOP)
        began = asyncio.get_running_loop().time()
        found = await more(engine, CORES)  # one more might wait for the next template
        assert asyncio.get_running_loop().time() - began < 4
        assert not any(was_forked(tmp_path, each) for each in found)
        assert "its template is ended: it is stopped" in caplog.text
        await pool(engine, lambda view: ready(1)(view) and view.templates == 1)
        await eventually(lambda: not runs(template))
        assert template_pid(tmp_path) != template


async def test_a_replica_that_is_not_wanted_any_more_while_it_is_forked_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with templated(tmp_path, forking(FORKS="signal.pause()")) as engine:
        first = await begun(engine)
        for pause_s in (0.0, 0.03, 0.06, 0.1, 0.2):
            await engine.scale(workload("b"), 1)
            await until(engine, lambda found: len(found) == 2)
            await asyncio.sleep(pause_s)  # moments within a birth, which tells of none of them
            await engine.scale(workload("b"), 0)
            (left,) = await until(engine, lambda found: len(found) == 1)
            assert left.id == first.id


async def test_a_template_out_of_processes_stays_and_those_that_it_cannot_fork_start_cold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with templated(tmp_path, forking()) as engine:
        await begun(engine)
        (template,) = os.listdir(tmp_path / "standbys")
        for folder in Cgroups(tmp_path, MACHINE.usable_bytes).folders(template):
            if (folder / "pids.max").exists():
                (folder / "pids.max").write_text("1")
        (cold,) = await more(engine, 1)
        assert not was_forked(tmp_path, cold)
        assert "it could not be forked: [Errno 11]" in caplog.text
        for folder in Cgroups(tmp_path, MACHINE.usable_bytes).folders(template):
            if (folder / "pids.max").exists():
                (folder / "pids.max").write_text("max")
        assert sum(was_forked(tmp_path, each) for each in await more(engine, 2)) == 1


async def test_a_template_out_of_memory_costs_one_cold_start_and_none_of_its_forks(
    tmp_path: Path,
) -> None:
    eats = "hoard = b'x' * (256 << 20 if os.path.exists('hoards') else 0)"
    async with templated(tmp_path, forking(FORKS=eats)) as engine:
        await begun(engine)
        (sibling,) = await more(engine, 1)
        assert was_forked(tmp_path, sibling)
        (template,) = os.listdir(tmp_path / "standbys")
        (tmp_path / "standbys" / template / "work/hoards").touch()
        limit = Cgroups(tmp_path, MACHINE.usable_bytes).folders(template)[0]
        names = [name for name in os.listdir(limit) if name in ("memory.max", LIMIT)]
        (limit / names[0]).write_text(str(64 * MIB))
        found = await more(engine, 2)
        assert sorted(was_forked(tmp_path, each) for each in found) == [False, True]
        assert [each.restarts for each in engine.replicas()] == [0, 0, 0]


async def test_an_engine_that_stops_while_it_makes_a_template_leaves_nothing(
    tmp_path: Path,
) -> None:
    for pause_s in (0.0, 0.02, 0.05, 0.08, 0.12):
        async with templated(tmp_path, forking()) as engine:
            await engine.scale(workload("a"), 1)
            await until(engine, states(S.READY))
            await asyncio.sleep(pause_s)  # moments of its birth, which tells of none of them


async def test_an_environment_whose_templates_fork_nothing_has_standbys(tmp_path: Path) -> None:
    stops = "os.kill(os.getppid(), signal.SIGSTOP); signal.pause()"
    async with templated(tmp_path, forking(FORKS=stops)) as engine:
        await begun(engine)
        for count in range(1, MOST_SPENT + 1):
            await pool(engine, lambda view: ready(1)(view) and view.templates == 1)
            assert not any(was_forked(tmp_path, each) for each in await more(engine, count))
        view = await pool(engine, lambda view: bool(view.unforkable))
        assert view.unforkable.startswith("the last 3 templates were ended without having forked")
        await pool(engine, lambda view: view.ready > 0 and not view.templates)
