from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotplate.platform.cli import main
from hotplate.platform.commands.events import event_line
from hotplate.platform.log_lines import fresh
from hotplate.platform.processes.data_dir import DataDir
from hotplate.platform.processes.role_state import SUPERVISOR, RoleState


@pytest.mark.parametrize(
    ("before", "after", "come"),
    [
        ([], ["a", "b"], ["a", "b"]),
        (["a", "b"], ["a", "b"], []),
        (["a", "b"], ["a", "b", "c"], ["c"]),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a"], ["x", "y"], ["x", "y"]),
    ],
)
def test_what_is_followed_shows_each_line_once(
    before: list[str], after: list[str], come: list[str]
) -> None:
    assert list(fresh(before, after)) == come


def test_an_event_names_its_deployment_or_the_platform() -> None:
    event = {"at": "2026-01-01T00:00:00+00:00", "kind": "RoleEnded", "message": "gone [so]"}
    assert "  platform         RoleEnded        gone \\[so]" in event_line(
        event | {"deployment": ""}, named=False
    )
    assert "  chat             RoleEnded" in event_line(event | {"deployment": "chat"}, named=False)
    assert "chat" not in event_line(event | {"deployment": "chat"}, named=True)


@pytest.fixture
def abandoned(tmp_path: Path) -> DataDir:
    """What is left of a platform of which only the supervisor still runs."""
    data = DataDir.at(tmp_path)
    data.note("endpoint", {"url": "http://127.0.0.1:1"})
    RoleState.of_new(SUPERVISOR, os.getpid(), ["up"]).note(data)
    RoleState("control-plane", 1, "another boot", ("control-plane",), 0.0).note(data)
    data.log("control-plane").write_text("no space left\n")
    data.events.add("RoleEnded", "the control-plane has ended")
    return data


def test_status_of_a_platform_that_is_down_says_what_is_left(
    abandoned: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--data", str(abandoned.root)]) == 1
    said, failed = capsys.readouterr()
    assert "control-plane  is not running" in said
    assert "| no space left" in said
    assert "is being started again by 'hotplate up'" in said
    assert failed.startswith("hotplate: http://127.0.0.1:1 does not answer")


def test_events_of_a_platform_that_is_down_are_its_own(
    abandoned: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events", "--data", str(abandoned.root)]) == 0
    said, _ = capsys.readouterr()
    assert "does not answer" in said
    assert "platform         RoleEnded        the control-plane has ended" in said
