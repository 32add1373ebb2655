"""What replicas do not see of this machine's files, tried from inside."""

from __future__ import annotations

import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy import enter as enter_module
from hotplate.deploy.enclosure import entrance
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local import LocalEngine
from hotplate.deploy.process_table import marked, session_members, stat_of
from hotplate.deploy.standby_settings import StandbyMode, StandbySettings
from hotplate.deploy.walls import Walls
from tests.deploy.fakes import MACHINE, QUICK, pid_of, runs, states, until, workload, zombies
from tests.deploy.test_standbys import pool, ready, warm

S = ReplicaState

LOOK = """
import ctypes, json, os, sys

def outcome(work):
    try:
        return work()
    except OSError as error:
        return error.strerror

def read(path):
    with open(path) as file:
        return file.read()

def write(path):
    with open(path, "w") as file:
        return file.write("mine")

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "done"

root, outside = sys.argv[1], sys.argv[2]
seen = {
    "listed": sorted(os.listdir(root)),
    "own": outcome(lambda: write("own") and read(f"{root}/work/own")),
    "shared": outcome(lambda: read(f"{root}/models/mine/file")),
    "shared written": outcome(lambda: write(f"{root}/models/mine/file")),
    "others": outcome(lambda: read(f"{root}/models/others/file")),
    "upwards": outcome(lambda: read("../models/others/file")),
    "a process outside": outcome(lambda: read(f"/proc/{outside}/environ")),
    "its files": outcome(lambda: os.listdir(f"/proc/{outside}/root")),
    "unmounted": outcome(lambda: call("umount2", root.encode(), 2)),
    "a user of its own": outcome(lambda: call("unshare", 0x10020000)),
    "unmounted there": outcome(lambda: call("umount2", root.encode(), 2)),
    "writable there": outcome(
        lambda: call("mount", None, f"{root}/models/mine".encode(), None, 0x1020, None)
    ),
    "written there": outcome(lambda: write(f"{root}/models/mine/file")),
}
print(json.dumps(seen))
"""


@dataclass
class Place:
    """A folder to hide, and as whom to look at it."""

    root: Path
    user: int

    def look(self) -> dict[str, Any]:
        walls = Walls([self.root])
        if walls.refusal:
            pytest.skip(f"no namespaces here: {walls.refusal}")
        around = walls.around([str(self.root / "models/mine")], [str(self.root / "work")])
        # As another user may read it, wherever this tree is.
        enter = shutil.copy(inspect.getfile(enter_module), self.root / "enter.py")
        program = sys.executable if self.user == os.getuid() else "/usr/bin/python3"
        if not Path(program).exists():
            pytest.skip("no interpreter that another user can start")
        python = [program, "-I", "-S"]
        look = [*python, "-c", LOOK, str(self.root), str(os.getpid())]
        said = subprocess.run(
            [*python, enter, "900", "--", *around, *look],
            cwd=self.root / "work",
            user=self.user,
            group=self.user,
            extra_groups=[] if os.getuid() == 0 else None,
            capture_output=True,
            check=False,
        )
        seen: dict[str, Any] = json.loads(said.stdout)
        return seen


@pytest.fixture(params=["ourselves", "an ordinary user"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    user = os.getuid() if request.param == "ourselves" else 65534
    if user != os.getuid() != 0:
        pytest.skip("only root can be another user")
    root = Path(tempfile.mkdtemp(prefix="walls-", dir="/tmp")).resolve()
    for name in ("work", "models/mine", "models/others"):
        (root / name).mkdir(parents=True)
    for name in ("mine", "others"):
        (root / "models" / name / "file").write_text(name)
    for path in (root, *root.rglob("*")):
        os.chown(path, user, user if user != os.getuid() else -1)
    try:
        yield Place(root, user)
    finally:
        shutil.rmtree(root)


def test_a_program_sees_what_it_needs_and_cannot_get_at_the_rest(place: Place) -> None:
    seen = place.look()
    assert seen["listed"] == ["models", "work"]
    assert (seen["own"], seen["shared"]) == ("mine", "mine")
    assert (place.root / "work/own").read_text() == "mine"
    missing, read_only, refused = "No such file or directory", "Read-only file system", ""
    assert (seen["others"], seen["upwards"]) == (missing, missing)
    assert (seen["shared written"], seen["written there"]) == (read_only, read_only)
    refused = "Permission denied"
    assert (seen["a process outside"], seen["its files"]) == (refused, refused)
    assert seen["unmounted"] == "Operation not permitted"
    assert seen["a user of its own"] == "done", "else the next two say nothing"
    assert seen["unmounted there"] == "Invalid argument"  # what the kernel says of a locked mount
    assert seen["writable there"] in (refused, "Operation not permitted")
    assert (place.root / "models/mine/file").read_text() == "mine"


async def test_replicas_and_those_that_were_standbys_see_no_other_replica(tmp_path: Path) -> None:
    root = tmp_path
    walls = Walls([root])
    if walls.refusal:
        pytest.skip(f"no namespaces here: {walls.refusal}")
    runtime = warm()
    settings = replace(QUICK, standby=StandbySettings(StandbyMode.FIXED, calm_s=0.0))
    engine = LocalEngine(root, runtime, MACHINE, settings, random.Random(1), walls=walls)
    await engine.start()
    try:
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
    finally:
        await engine.stop_all()
        await engine.close()


def at_the_door(directory: Path) -> tuple[int, int]:
    """The only standby, and who waits there."""
    (folder,) = (directory / "standbys").iterdir()
    standby = stat_of(marked("HOTPLATE_REPLICA_DIR", [str(folder / "work")])[0]).session
    (waits,) = set(session_members(standby)) - {standby}
    return standby, waits


async def test_who_waits_at_a_standbys_door_is_a_child_that_leaves_nothing(tmp_path: Path) -> None:
    walls = Walls([tmp_path])
    if walls.refusal:
        pytest.skip(f"no namespaces here: {walls.refusal}")
    settings = replace(QUICK, standby=StandbySettings(StandbyMode.FIXED, calm_s=0.0))
    engine = LocalEngine(tmp_path, warm(), MACHINE, settings, random.Random(1), walls=walls)
    await engine.start()
    used = []
    try:
        await engine.scale(workload("a"), 1)
        for count in (2, 3):
            await pool(engine, ready(1))
            standby, waits = at_the_door(tmp_path)
            used.append(standby)
            assert stat_of(waits).parent == os.getpid(), "else only the system could reap it"
            await engine.scale(workload("a"), count)
            await until(engine, states(*[S.READY] * count))
            assert not runs(waits) and zombies() == []
        replicas = {pid_of(tmp_path, each.id) for each in engine.replicas()}
        assert set(used) < replicas, "both standbys have become replicas"
        await pool(engine, ready(1))  # this one ends with somebody at its door
        used.append(at_the_door(tmp_path)[0])
    finally:
        await engine.stop_all()
        await engine.close()
    assert zombies() == []
    assert [session_members(pid) for pid in used] == [[], [], []]


def test_where_no_namespace_may_be_made_a_sentence_says_why_and_programs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.deploy.walls._LIMIT_S", 0.0)
    refused = Walls([tmp_path])
    assert "timed out" in refused.refusal
    done = subprocess.run([*entrance((), 0), *refused.around([], []), "/bin/ls", tmp_path])
    assert done.returncode == 0
