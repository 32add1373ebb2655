"""Isolation of replicas that were standbys, and who waits at a standby's mount helper."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.process.procfs import is_first, marked, session_members, stat_of
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from tests.deploy.local.standby.test_pools import idle_standby, pool, ready, warm
from tests.support.deploy.fake_runtime import MACHINE, QUICK, workload
from tests.support.deploy.running import pid_of, runs, started, states, until, zombies
from tests.support.patience import until as eventually

S = ReplicaState
MISSING, READ_ONLY = "No such file or directory", "Read-only file system"
FORBIDDEN, REFUSED = "Permission denied", "Operation not permitted"


async def test_replicas_and_those_that_were_standbys_see_no_other_replica(tmp_path: Path) -> None:
    root = tmp_path
    isolation = Isolation([root])
    if isolation.refusal:
        pytest.skip(f"no namespaces here: {isolation.refusal}")
    runtime = warm()
    settings = replace(QUICK, standby=StandbySettings(StandbyMode.FIXED, calm_s=0.0))
    engine = LocalEngine(
        host_in(root, MACHINE, isolation=isolation), runtime, MACHINE, settings, random.Random(1)
    )
    async with started(engine):
        for count, name in enumerate("ab", start=1):
            await engine.scale(workload(name, lists=str(root / "replicas")), 1)
            await until(engine, states(*[S.READY] * count))
            await pool(engine, ready(1))
        replicas = engine.replicas()
        for each in replicas:
            work = root / "replicas" / each.id / "work"
            assert json.loads((work / "listed").read_text()) == [each.id]
        works = [root / "replicas" / each.id / "work/seen.json" for each in replicas]
        assert ["WAS" in json.loads(work.read_text()) for work in works] == [False, True]


def at_the_door(directory: Path) -> tuple[int, int]:
    """The only standby, and who waits there."""
    found = marked("HOTPLATE_REPLICA_DIR", [str(idle_standby(directory))])
    (waits,) = (
        pid for pid in found if os.path.samefile(f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
    )
    (standby,) = (pid for pid in found if pid != waits and not is_first(pid))
    return standby, waits


async def test_who_waits_at_a_standbys_door_is_a_child_that_leaves_nothing(tmp_path: Path) -> None:
    isolation = Isolation([tmp_path])
    if isolation.refusal:
        pytest.skip(f"no namespaces here: {isolation.refusal}")
    settings = replace(QUICK, standby=StandbySettings(StandbyMode.FIXED, calm_s=0.0))
    engine = LocalEngine(
        host_in(tmp_path, MACHINE, isolation=isolation), warm(), MACHINE, settings, random.Random(1)
    )
    used = []
    async with started(engine):
        await engine.scale(workload("a"), 1)
        for count in (2, 3):
            await pool(engine, ready(1))
            standby, waits = at_the_door(tmp_path)
            used.append(standby)
            assert stat_of(waits).parent == os.getpid(), "else only the system could reap it"
            await engine.scale(workload("a"), count)
            await until(engine, states(*[S.READY] * count))
            await eventually(lambda: zombies() == [])
            assert not runs(waits)
        replicas = {pid_of(tmp_path, each.id) for each in engine.replicas()}
        assert set(used) < replicas, "both standbys have become replicas"
        await pool(engine, ready(1))  # this one ends with its mount helper
        used.append(at_the_door(tmp_path)[0])
    assert zombies() == []
    assert [session_members(pid) for pid in used] == [[], [], []]
