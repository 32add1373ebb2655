"""`hotplate status`: what it says, and that it fits where it is read."""

from __future__ import annotations

import io
import os
import re
import termios
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from hotplate.platform.commands.pages.deployment import phase_chart, show_all, show_deployment
from hotplate.platform.commands.pages.installation import show_platform
from hotplate.platform.commands.pages.printing import COLUMNS, page_console

ITEM: dict[str, Any] = {
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
                "slots": "4 slots, learnt (async methods; traffic.concurrency is not set)",
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
                "memory_bytes": 23_000_000,
                "reason": "killed by signal 9",
                "phases": [],
                "out": "it takes no connection: refused",
                "out_since": "2026-01-01T00:00:00+00:00",
                "abandoned_handlers": 2,
            }
        ],
    },
    "tasks": {"pending": 3, "failed": 1},
    "decisions": [
        {"at": "2026-01-01T00:00:00+00:00", "replicas": 0, "desired": 1, "reason": "wake"}
    ],
}


def shown(show: Callable[..., None], *arguments: object, width: int = 200) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, emoji=False), *arguments)
    return out.getvalue().splitlines()


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


@pytest.mark.parametrize(
    "said",
    [
        "tasks kept: 1 failed, 3 pending",
        "exited with code 1",
        "ImportError: [nope]",
        "0 to 2 replicas; 1 in flight, 2 queued",
        "4 slots, learnt (async methods; traffic.concurrency is not set)",
        "(2 restarts), 23.0 MB of memory",
        "killed by signal 9",
        "callers cannot reach it: 127.0.0.1:7100 cannot be listened on",
        "refused since their gateway started: 7 share_full (the queue is full), 2 no_capacity",
        "1 unauthorized; more replicas (scaling.max_replicas)",
        "2 abandoned handlers: WebSockets that still run",
        "00:00: it takes no connection: refused; a gateway tries it at least every 5 s",
        "0 → 1  wake",
    ],
)
def test_status_says_why_and_shows_the_log_of_what_failed(said: str) -> None:
    assert said in " ".join(line.lstrip(" |") for line in shown(show_deployment, ITEM))


def test_all_deployments_stand_in_columns_each_with_its_reason_below() -> None:
    ready = [{"state": "ready"}, {"state": "starting"}]
    items = [
        {"name": "chat", "status": "running", "url": "http://h:7100", "reason": "1 replica ready"}
        | {"live": {"replicas": ready}},
        {"name": "embed-all", "status": "scaled-to-zero", "url": "http://h:7101", "reason": ""}
        | {"live": {"replicas": []}},
    ]
    assert shown(show_all, items) == [
        "NAME       STATUS          REPLICAS  URL",
        "chat       running         1/2       http://h:7100",
        "    1 replica ready",
        "embed-all  scaled-to-zero  0/0       http://h:7101",
    ]


LONG = "the node has 2 CPUs and 3.7 GiB, and 'Chat' asks for :smile: [red]40[/] of them; " * 5
WIDE = "機械学習モデル" * 30
ODD = "\x1b[31mred\x1b[0m\ttab \x1b]0;title\x07 bell \x85 next\u2028line\r\nand another"
ADDRESS = f"http://{'very-long-host.' * 8}example.org:7100/{'path/' * 20}"


@pytest.mark.parametrize("words", [LONG, WIDE, ODD, ADDRESS, "x" * 300], ids=range(5))
@pytest.mark.parametrize("width", [COLUMNS, 120])
def test_no_line_is_wider_than_it_may_be_and_none_is_cut(words: str, width: int) -> None:
    name = "n" * 63
    service = ITEM["live"]["services"][0] | {
        "service": "S" * 63,
        "revision": 123,
        "reason": words,
        "unserved": words,
        "max_replicas": 100000,
        "slots": words,
    }
    phases = [{"name": "environment", "start": 0.0, "end": 99999.0, "share_s": 99999.0}]
    replica = ITEM["live"]["replicas"][0] | {"id": f"{name}-3-{'S' * 63}-abcde", "reason": words}
    item = ITEM | {
        "name": name,
        "url": ADDRESS,
        "bento": f"{name}:{name}",
        "reason": words,
        "revisions": [{"log_tail": [words]}],
        "live": {
            "services": [service],
            "replicas": [replica | {"out": words, "phases": phases}],
        },
        "decisions": [ITEM["decisions"][0] | {"reason": words}],
    }
    role = {"name": "control-plane", "pid": 1, "since": 0.0, "runs": True, "restarts": 12}
    amount = {"cpus": 1024.0, "memory_bytes": 1 << 45, "gpus": 1024.0}
    page = {
        "roles": [role | {"last_end": words}],
        "nodes": [{"name": name, "cpus": 512.0, "in_all": amount, "taken": amount}],
        "disks": [{"path": f"/{name}/{words}", "free_bytes": 1, "total_bytes": 1 << 50}],
        "walls": {"up": True, "why": ""},
        "short": [words],
    }
    lines = [
        *shown(show_all, [item, ITEM], width=width),
        *shown(show_deployment, item, width=width),
        *shown(show_platform, page, width=width),
    ]
    assert max(map(cell_len, lines)) <= width
    assert not any("\x1b" in line or "…" in line for line in lines)
    whole = re.sub(r"\s|\|", "", "".join(lines))
    said = re.sub(r"\x1b\[[0-9]+m|[\s\x80-\x9f|]", "", words)
    said = said.replace("\x1b", "␛").replace("\x07", "␇")
    assert whole.count(said) >= 8, "every place says all of it"


@pytest.mark.parametrize(("terminal", "width"), [(80, 80), (132, 132), (0, COLUMNS)])
def test_a_terminals_own_width_is_kept_to(
    monkeypatch: pytest.MonkeyPatch, terminal: int, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, end = os.openpty()
    termios.tcsetwinsize(end, (24, terminal))
    with open(end, "w") as screen:
        monkeypatch.setattr("sys.stdout", screen)
        assert page_console().width == width


def test_what_is_printed_into_a_pipe_is_80_columns_wide_whatever_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert page_console().width == COLUMNS
