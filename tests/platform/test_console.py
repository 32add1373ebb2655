from __future__ import annotations

import io

from rich.console import Console

from hotplate.platform.console import phase_chart, show_deployment


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
                }
            ],
            "replicas": [
                {
                    "id": "chat-1",
                    "state": "backoff",
                    "restarts": 2,
                    "reason": "killed by signal 9",
                    "phases": [],
                }
            ],
        },
        "decisions": [
            {"at": "2026-01-01T00:00:00+00:00", "replicas": 0, "desired": 1, "reason": "wake"}
        ],
    }
    show_deployment(Console(file=out, width=200), item)
    text = out.getvalue()
    for said in (
        "exited with code 1",
        "ImportError: [nope]",
        "0 to 2 replicas of 4 slots; 1 in flight, 2 queued",
        "(2 restarts)",
        "killed by signal 9",
        "0 → 1  wake",
    ):
        assert said in text
