"""The Locust files run with plain `locust` against a real server."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import itertools
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.loadtest.asking.shapes import SHAPES
from tests.support.load_target import EVENTS, ORGANIZATION, load_target
from tests.support.ports import free_port

FOLDER = Path(__file__).parents[2] / "loadtests" / "locustfiles"
Rows = dict[tuple[str, str], dict[str, Any]]


def loaded(name: str) -> ModuleType:
    """A file that needs no Locust, which would change this process's sockets."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def locust(folder: Path, files: str, *flags: object) -> tuple[Rows, str]:
    """The rows of its statistics by type and name, and what else it says."""
    paths = ",".join(str(FOLDER / f"{name}.py") for name in files.split())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "locust", "--headless", "--only-summary", "--json", "-f", paths),
        *map(str, flags),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    # Each process prints a list; workers have told theirs the master, and print an empty one.
    _, beginning, rest = printed.decode().partition("[\n")
    rows, _ = json.JSONDecoder().raw_decode(beginning + rest or "[]")
    return {(row["method"], row["name"]): row for row in rows}, said.decode()


async def test_every_kind_of_user_is_answered(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"meow")
    (tmp_path / "payloads.jsonl").write_text('{"n": 0}\n{"n": 1}\n')
    async with load_target() as target:
        rows, said = await locust(
            tmp_path,
            "endpoint streams tasks sockets chat",
            *("--host", target.url, "--route", "/stream", "-u", 20, "-r", 20, "-t", "3s"),
            *("--payload", "payloads.jsonl", "--organizations", "acme=3,beta=1"),
            *("--organization-header", ORGANIZATION, "--per-user", 5),
            *("--file", "image=cat.png", "--stream", "--model", "small", "--prompt", "Why?"),
        )
    assert {row["num_failures"] for row in rows.values()} == {0}, said
    counts = {method: row["num_requests"] for (method, name), row in rows.items()}
    assert set(counts) == {"POST", "GET", "FIRST", "BETWEEN", "TASK", "OPEN", "MESSAGE"}
    assert counts["MESSAGE"] > 0 and counts["TASK"] > 0
    # A stream may be cut off when the time is over.
    assert 0 <= counts["FIRST"] * (EVENTS - 1) - counts["BETWEEN"] <= 20 * EVENTS
    callers = Counter(organization for organization, _ in target.posted)
    assert callers["acme"] > callers["beta"] > 0 and set(callers) == {"acme", "beta"}
    bodies = {body for _, body in target.posted}
    assert {'{"n": 0}', '{"n": 1}'} <= bodies
    assert any('filename="cat.png"' in body and "meow" in body for body in bodies)
    assert any('"content": "Why?"' in body and '"model": "small"' in body for body in bodies)


async def test_users_follow_a_shape_on_several_processes_and_no_redirect(tmp_path: Path) -> None:
    port = free_port()
    async with load_target() as target:
        rows, said = await locust(
            tmp_path,
            "endpoint shapes",
            *("--host", target.url, "--route", "/moved", "--per-user", 5, "--processes", 2),
            *("--shape", "ramp", "-u", 6, "-t", "3s"),
            *("--master-bind-port", port, "--master-port", port),
        )
    row = rows["POST", "/moved"]
    assert row["num_failures"] == row["num_requests"] > 0, said
    assert set(target.arrived) == {"POST /moved"}
    users = [int(count) for count in re.findall(r"updating to (\d+) users", said)]
    assert users[0] == 0 < users[-1] and users == sorted(users)


@pytest.mark.parametrize(
    ("files", "flags", "sentence"),
    [
        ("chat", ["--payload", "[1"], "locust: --payload [1: give JSON, or a file"),
        ("endpoint shapes", ["--shape", "trace"], "locust: --shape trace needs --trace FILE"),
        ("endpoint", ["--file", "image=none.png"], "No such file or directory: 'none.png'"),
    ],
)
async def test_an_option_that_cannot_be_used_ends_it_with_a_sentence(
    tmp_path: Path, files: str, flags: list[str], sentence: str
) -> None:
    _, said = await locust(tmp_path, files, "--host", "http://127.0.0.1", "-t", "1s", *flags)
    assert sentence in said and "Traceback" not in said


def test_shapes_are_those_of_hotplate_loadtest(tmp_path: Path) -> None:
    shapes = loaded("load_shapes")
    assert set(shapes.SHARES) == set(SHAPES)
    for name, shape in SHAPES.items():
        for step in range(100):
            assert shapes.SHARES[name](step / 100) == pytest.approx(shape.share(step / 100))
    trace = tmp_path / "trace.csv.gz"
    rows = ["arrival_s,service_s", "10,1", *["65,1"] * 4, "70,1"]
    trace.write_bytes(gzip.compress("\n".join(rows).encode()))
    share, lasts_s = shapes.of_trace(trace)
    assert lasts_s == 60
    assert [share(at) for at in (0.0, 0.5, 55.5 / 60, 1.0)] == [0.25, 0.0, 1.0, 0.25]


@given(st.lists(st.sampled_from(["data: 1", "data:2", "data", ": x", "id: 7", ""])), st.data())
def test_events_are_the_same_however_their_bytes_arrive(
    lines: list[str], data: st.DataObject
) -> None:
    reader = loaded("server_sent_events").EventReader
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = "".join(line + end for line in [*lines, "", "data: last", ""]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    one, other = reader(), reader()
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    found = [event for piece in pieces for event in one.feed(piece)]
    assert found == other.feed(text)
    assert found[-1] == b"last"


def test_lines_of_an_event_are_one_and_what_ends_a_chat_is_none() -> None:
    reader = loaded("server_sent_events").EventReader()
    sent = b": ping\r\n\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\ndata: [DONE]\r\n\r\ndata: half"
    assert reader.feed(sent) == [b"a\nb"]
