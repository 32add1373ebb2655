"""Which walls stand is found by trying, and nothing of that is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hotplate.deploy.sandbox.escape_attempts import attempts
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.isolation_check import (
    WALLS,
    CheckResult,
    CheckState,
    advice,
    inspect,
    memory,
)
from hotplate.deploy.sandbox.launcher import instructions as plan


def inspected(folder: Path, isolation: Isolation) -> dict[str, CheckResult]:
    return {finding.name: finding for finding in asyncio.run(inspect(folder, isolation))}


def test_without_walls_every_way_through_is_found(tmp_path: Path) -> None:
    found = inspected(tmp_path, Isolation())
    for name in ("files", "processes", "ipc", "privileges", "calls"):
        assert (found[name].state, found[name].tried) == (CheckState.MISSING, True), name
        assert "nothing is to be hidden" in found[name].sentence
    assert "read the platform's files" in found["files"].sentence
    assert "call other replicas past the gateway" in found["files"].sentence
    assert "end and stop processes" in found["processes"].sentence


def test_within_walls_none_is(tmp_path: Path) -> None:
    isolation = Isolation([tmp_path])
    if isolation.missing:
        pytest.skip(f"not all walls can be put up here: {isolation.missing}")
    found = inspected(tmp_path, isolation)
    states = {finding.state for name, finding in found.items() if name != "memory"}
    assert states == {CheckState.OK}, found
    assert ("ids" in found) == (os.geteuid() == 0)


@pytest.mark.parametrize(
    ("gone", "opens"),
    [
        (plan.PROCESSES, {"processes", "ipc"}),
        (plan.DEVICES, {"files"}),  # of /dev/shm; its ids keep it from disks
        (plan.LIMITS, {"limits"}),
        (plan.CALLS, {"calls"}),
        (plan.USERS, {"ids"}),
    ],
)
def test_a_wall_that_is_gone_is_found_among_those_that_stand(
    tmp_path: Path, gone: str, opens: set[str]
) -> None:
    isolation = Isolation([tmp_path])
    if isolation.missing or gone not in isolation.up:
        pytest.skip(f"not all walls can be put up here: {isolation.missing or gone}")
    isolation.up -= {gone}
    isolation.refusals = {gone: "taken away by a test"}
    found = inspected(tmp_path, isolation)
    missing = {name for name, finding in found.items() if finding.state is CheckState.MISSING}
    assert opens <= missing
    assert all("taken away by a test" in found[name].sentence for name in missing)


def test_nothing_is_left_of_an_inspection(tmp_path: Path) -> None:
    def seen() -> tuple[set[str], ...]:
        mine = [{name for name in os.listdir(f) if "doctor" in name} for f in ("/tmp", "/dev/shm")]
        return (set(os.listdir(tmp_path)), *mine, set(os.listdir("/etc")))

    segments = Path("/proc/sysvipc/shm")
    before, shared = seen(), segments.read_text().count("\n")
    inspected(tmp_path, Isolation())
    assert (seen(), segments.read_text().count("\n")) == (before, shared)


def test_every_attempt_belongs_to_a_wall() -> None:
    """Else what it finds would be said nowhere."""
    outside = {"victim": "", "left": ""}
    judged = {name for wall in WALLS for name in wall.attempts}
    assert set(attempts(outside)) - judged == {"file"}  # of which the owner is looked at


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("sys/user/max_user_namespaces", "0\n", "sysctl user.max_user_namespaces=15000"),
        ("sys/kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone=1"),
        ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "an AppArmor profile"),
        ("version", "Linux version 4.4.0 gVisor", "this kernel is gVisor"),
    ],
)
def test_the_machines_settings_say_what_to_do(
    tmp_path: Path, file: str, text: str, said: str
) -> None:
    assert advice(tmp_path) == []
    path = tmp_path / "proc" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (sentence,) = advice(tmp_path)
    assert said in sentence


def test_where_no_control_group_can_be_made_memory_is_watched(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/here\n")
    weak = memory(tmp_path)
    assert weak.state is CheckState.WEAK
    assert "no memory controller" in weak.sentence
    home = tmp_path / "sys/fs/cgroup/here"
    home.mkdir(parents=True)
    (home / "cgroup.controllers").write_text("cpu memory pids\n")
    assert memory(tmp_path).state is CheckState.OK
    assert os.listdir(home) == ["cgroup.controllers"]
