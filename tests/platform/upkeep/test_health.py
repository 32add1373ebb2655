"""Whether the platform's parts work: shown at once, an event when it lasts, told for people."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hotplate.platform.commands.pages.installation import show_platform, show_what_is_left
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.event_log import EventLog
from hotplate.platform.processes.role_state import ROLES, SUPERVISOR, RoleState
from hotplate.platform.store.parts import Store
from hotplate.platform.upkeep.health import Check, HealthMonitor, PartRefusals, disks_of

GIB = 1 << 30


class Part:
    """A part of the platform that is as a test wants it."""

    def __init__(self) -> None:
        self.why_not = ""
        self.broken = False

    def check(self) -> Check:
        return Check("the agent", "AgentLost", "AgentBack", self._look)

    async def _look(self) -> str:
        if self.broken:
            raise RuntimeError("a bug")
        return self.why_not


async def test_what_is_short_is_shown_at_once_and_told_when_it_lasts(tmp_path: Path) -> None:
    part, events = Part(), EventLog(tmp_path / "events.jsonl")
    health = HealthMonitor([part.check()], events.add)
    await health.look(0)
    assert health.short == []
    part.why_not = "the agent does not answer"
    await health.look(3)
    assert health.short == ["the agent does not answer"]
    assert events.events() == [], "it may be back at once"
    for now in (6, 9):
        await health.look(now)
    part.why_not = ""
    await health.look(12)
    assert health.short == []
    assert [(event.kind, event.message) for event in reversed(events.events())] == [
        ("AgentLost", "the agent does not answer"),
        ("AgentBack", "the agent works again, after 9 s"),
    ]


async def test_a_blink_is_no_event(tmp_path: Path) -> None:
    part, events = Part(), EventLog(tmp_path / "events.jsonl")
    health = HealthMonitor([part.check()], events.add)
    for now, why_not in enumerate(["", "gone", "", "gone", ""]):
        part.why_not = why_not
        await health.look(now)
    assert events.events() == []


async def test_a_check_with_a_bug_costs_no_other_check(tmp_path: Path) -> None:
    broken, part = Part(), Part()
    broken.broken, part.why_not = True, "gone"
    health = HealthMonitor([broken.check(), part.check()], EventLog(tmp_path / "events.jsonl").add)
    await health.look(0)
    assert health.short == ["gone"]


async def test_each_refusal_is_told_once_whatever_else_was_refused_before(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    looks = [["a"], ["a"], ["a", "b"], ["b"], [], ["a"]]
    lately = iter(looks)

    async def sentences() -> list[str]:
        return next(lately)

    health = HealthMonitor(
        [], lambda kind, said: told.append((kind, said)), [PartRefusals("Refused", sentences)]
    )
    for now in range(len(looks)):
        await health.look(now)
    assert told == [("Refused", "a"), ("Refused", "b"), ("Refused", "a")]


def test_folders_on_one_disk_are_one_disk(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (disk,) = disks_of([tmp_path, tmp_path / "a"])
    assert disk["path"] == str(tmp_path)
    assert 0 < disk["free_bytes"] <= disk["total_bytes"]


def test_a_database_that_failed_is_tried_with_a_write(store: Store) -> None:
    store.check()
    assert store.learnt.get("check") is None, "nothing is written while all is well"
    store.database.failed = True
    store.check()
    first = store.learnt.get("check")
    assert first is not None
    store.check()
    assert store.learnt.get("check") == first


def said_by(show: Callable[..., None], *arguments: object) -> str:
    out = io.StringIO()
    show(Console(file=out, width=500), *arguments)
    return out.getvalue()


def test_the_page_says_who_runs_what_is_taken_and_what_is_short() -> None:
    role = {"name": "gateway", "pid": 7, "since": 0.0, "runs": True, "restarts": 2}
    gone = {"name": "agent", "pid": 8, "since": 0.0, "runs": False, "restarts": 0, "last_end": ""}
    amount = {"cpus": 2.0, "memory_bytes": 4 * GIB, "gpus": 1.0}
    page = {
        "roles": [role | {"last_end": "killed by signal 9"}, gone],
        "nodes": [
            {"name": "one", "in_all": amount, "taken": amount | {"cpus": 0.5}, "cpus": 2.0},
            {"name": "two", "in_all": amount | {"cpus": 8.0}, "taken": amount, "cpus": 2.0},
        ],
        "disks": [{"path": "/data", "free_bytes": GIB, "total_bytes": 2 * GIB}],
        "walls": {"up": True, "why": ""},
        "short": ["the agent does not answer"],
    }
    said = said_by(show_platform, page)
    assert "(pid 7), started again 2 times; the one before it: killed by signal 9" in said
    assert "agent          is not running" in said
    assert "one            0.5 of 2.0 CPUs, 4.0 of 4.0 GiB of memory and 1 of 1 GPUs taken" in said
    assert (
        "two            2.0 of 4 x 2.0 CPUs, 4.0 of 4.0 GiB of memory and 1 of 1 GPUs taken" in said
    )
    assert "1.0 of 2.0 GiB free at /data" in said
    assert "the agent does not answer" in said


def test_the_page_of_a_cluster_says_on_which_node_each_pod_is() -> None:
    pod = {"since": 0.0, "restarts": 0, "last_end": ""}
    page: dict[str, Any] = {"nodes": [], "disks": [], "short": []}
    page["walls"] = {"up": True, "why": ""}
    page["roles"] = [
        pod
        | {"name": "hotplate-gateway-a", "node": "node1", "runs": True, "restarts": 1}
        | {"last_end": "OOMKilled"},
        pod | {"name": "hotplate-gateway-b", "node": "node2", "runs": False},
        pod | {"name": "hotplate-gateway-c", "node": "", "runs": False},
    ]
    lines = said_by(show_platform, page).splitlines()
    first, second, third = (line for line in lines if "hotplate-gateway-" in line)
    assert "hotplate-gateway-a running since " in first
    assert first.endswith(" (on node1), started again once; the one before it: OOMKilled")
    assert second.strip() == "hotplate-gateway-b is not running on node2"
    assert third.strip() == "hotplate-gateway-c is not running"


@pytest.mark.parametrize(
    ("running", "advice"),
    [
        ([SUPERVISOR, "gateway"], "the control plane is being started again by 'hotplate up'"),
        (["gateway"], "which takes them over and interrupts no request"),
        ([], "nothing of the platform runs: start it with 'hotplate up"),
    ],
)
def test_without_a_control_plane_the_data_directory_says_what_is_left(
    tmp_path: Path, running: list[str], advice: str
) -> None:
    data = DataDir.at(tmp_path)
    for name in (SUPERVISOR, *ROLES):
        state = RoleState.of_new(name, os.getpid() if name in running else os.getppid(), [name])
        if name not in running:
            state = RoleState(name, state.pid, "another boot", (name,), 0.0)
        state.note(data)
    data.log("control-plane").write_text("ready\nthe disk is [full]\n")
    said = said_by(show_what_is_left, data)
    assert "| the disk is [full]" in said
    assert said.count("is not running") == len(ROLES) + 1 - len(running)
    assert advice in said
