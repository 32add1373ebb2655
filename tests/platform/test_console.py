from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from hotplate.platform.cli import main
from hotplate.platform.console import event_line, fresh, phase_chart, show_deployment
from hotplate.platform.data_dir import DataDir
from hotplate.platform.role_state import SUPERVISOR, RoleState


def test_phases_stand_on_one_time_axis() -> None:
    phases = [
        {"name": "environment", "start": 100.0, "end": 104.0, "share_s": 4.0},
        {"name": "weights", "start": 100.0, "end": 102.0, "share_s": 0.0},
        {"name": "process", "start": 104.0, "end": 108.0, "share_s": 3.0},
        {"name": "weights", "start": 107.0, "end": 108.0, "share_s": 1.0},
        {"name": "init", "start": 108.0, "end": None},
    ]
    assert phase_chart(phases, cells=8) == [
        "                         lasted    waited",
        "environment ████         4.00 s    4.00 s",
        "weights     ██     █     3.00 s    1.00 s",
        "process         ████     4.00 s    3.00 s",
        "in all                             8.00 s",
    ]


def test_nothing_is_drawn_of_a_start_that_has_no_phase_yet() -> None:
    assert phase_chart([]) == []


def test_status_says_why_and_shows_the_log_of_what_failed() -> None:
    out = io.StringIO()
    item = {
        "name": "chat",
        "status": "failed",
        "reason": "revision 1: service 'Chat' cannot start: exited with code 1",
        "url": "http://127.0.0.1:7100",
        "bento": "chat:v1",
        "revisions": [{"log_tail": ["ImportError: [nope]"]}],
        "live": {
            "services": [
                {
                    "service": "Chat",
                    "revision": 1,
                    "min_replicas": 0,
                    "max_replicas": 2,
                    "concurrency": 4,
                    "in_flight": 1,
                    "queued": 2,
                    "reason": "1 of 2: held",
                    "unserved": "127.0.0.1:7100 cannot be listened on",
                    "refused": {"no_capacity": 2, "share_full": 7, "unauthorized": 1},
                }
            ],
            "replicas": [
                {
                    "id": "chat-1",
                    "state": "backoff",
                    "restarts": 2,
                    "reason": "killed by signal 9",
                    "phases": [],
                    "out": "it takes no connection: refused",
                    "out_since": "2026-01-01T00:00:00+00:00",
                }
            ],
        },
        "tasks": {"pending": 3, "failed": 1},
        "decisions": [
            {"at": "2026-01-01T00:00:00+00:00", "replicas": 0, "desired": 1, "reason": "wake"}
        ],
    }
    show_deployment(Console(file=out, width=200), item)
    text = out.getvalue()
    for said in (
        "tasks kept: 1 failed, 3 pending",
        "exited with code 1",
        "ImportError: [nope]",
        "0 to 2 replicas of 4 slots; 1 in flight, 2 queued",
        "(2 restarts)",
        "killed by signal 9",
        "it cannot be called: 127.0.0.1:7100 cannot be listened on",
        "refused since their gateway started: 7 share_full (no room in the queue), 2 no_capacity",
        "1 unauthorized; more replicas (scaling.max_replicas)",
        "00:00: it takes no connection: refused; it is tried every 5 s or oftener",
        "0 → 1  wake",
    ):
        assert said in text


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
    assert "control-plane  does not run" in said
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
