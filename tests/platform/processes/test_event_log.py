"""What is kept of what happened to the platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotplate.platform.processes import event_log
from hotplate.platform.processes.event_log import EventLog


def test_the_last_events_come_newest_first(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "logs" / "events.jsonl")
    assert log.events() == []
    assert not (tmp_path / "logs").exists(), "who only looks makes nothing"
    for number in range(3):
        log.add("RoleEnded", f"the gateway ended {number}")
    assert [event.message for event in log.events(2)] == [
        "the gateway ended 2",
        "the gateway ended 1",
    ]
    assert [event.deployment for event in log.events()] == [""] * 3


def test_half_a_line_costs_no_other_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"at": "2026-01-\n')
    EventLog(path).add("AgentLost", "the agent does not answer")
    assert [event.kind for event in EventLog(path).events()] == ["AgentLost"]


def test_a_disk_that_is_full_costs_the_event_and_not_the_caller(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    EventLog(tmp_path / "logs" / "events.jsonl").add("DiskShort", "it is full")


def test_the_file_does_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MAX_BYTES", 1000)
    log = EventLog(tmp_path / "events.jsonl")
    for number in range(100):
        log.add("RoleEnded", f"the gateway ended {number}")
    assert log.events()[0].message == "the gateway ended 99"
    assert len(log.events()) > 5
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3000
