"""What `make bench-cache` measures with: an origin, connections of a given speed, its table."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from time import perf_counter

import pytest

from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_least, at_most
from loadtests.harness.pace import pace_process
from loadtests.harness.report import table_of
from loadtests.programs.origin import Handler, Sent, Server
from loadtests.systems.model_file import BUCKET, ModelFile, model_file

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return model_file(tmp_path_factory.mktemp("origin"), 2 << 23)


@pytest.fixture
def connection(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPConnection]:
    """To an origin of that model."""
    monkeypatch.setattr(Handler, "root", model.root, raising=False)
    monkeypatch.setattr(Handler, "sent", Sent())
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        asked = HTTPConnection("127.0.0.1", server.server_port)
        yield asked
        asked.close()
        server.shutdown()
        thread.join()


def test_a_model_is_a_safetensors_file_of_different_tensors(model: ModelFile) -> None:
    data = model.path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    spans = [one["data_offsets"] for one in json.loads(data[8:start]).values()]
    first, second = (data[start + begin : start + end] for begin, end in spans)
    assert len(first) + len(second) == model.tensor_bytes == len(data) - start
    assert first != second


def test_the_origin_answers_a_range_and_counts_it(
    model: ModelFile, connection: HTTPConnection
) -> None:
    data = model.path.read_bytes()
    for span, start, stop in (("5-9", 5, 10), ("7-", 7, len(data)), ("-4", -4, len(data))):
        answer = _get(connection, f"/{model.key}", {"Range": f"bytes={span}"})
        assert answer.status == 206 and answer.read() == data[start:stop]
    _head(connection, f"/{model.key}")  # its thread has counted by the time it answers the next
    assert Handler.sent.bytes == {BUCKET: 5 + len(data) - 7 + 4}


def test_the_origin_refuses_another_version(model: ModelFile, connection: HTTPConnection) -> None:
    tag = _head(connection, f"/{model.key}").getheader("ETag", "")
    answer = _get(connection, f"/{model.key}", {"If-Match": '"another"', "Range": "bytes=0-1"})
    answer.read()
    assert answer.status == 412
    answer = _get(connection, f"/{model.key}", {"If-Match": tag, "Range": "bytes=0-1"})
    assert answer.status == 206 and len(answer.read()) == 2


def test_the_origin_lists_a_bucket(model: ModelFile, connection: HTTPConnection) -> None:
    listed = _get(connection, f"/{BUCKET}?list-type=2&prefix=mod").read().decode()
    assert f"<Key>{model.name}</Key><Size>{model.size_bytes}</Size>" in listed
    assert "<Key>" not in _get(connection, f"/{BUCKET}?list-type=2&prefix=x").read().decode()


def test_a_process_that_listens_is_given_a_speed(model: ModelFile) -> None:
    rate, size = 50e6, model.size_bytes
    with _running_origin(model) as (process, port):
        pace_process(process.pid, rate)
        connection = HTTPConnection("127.0.0.1", port)
        began = perf_counter()
        assert len(_get(connection, f"/{model.key}").read()) == size
        took_s = perf_counter() - began
        connection.close()
    assert took_s > 0.8 * size / rate


def test_a_process_that_is_gone_cannot_be_given_a_speed() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    with pytest.raises(OSError):
        pace_process(process.pid, 1e6)


def test_a_row_says_whether_its_bound_holds() -> None:
    assert row("a", {"ours": 1.0}, at_most(1.05)).holds == "yes"
    assert row("a", {"ours": 1.0, "raw": 2.0}, at_least(1.1)).holds == "NO"
    assert row("a", {"raw": 1.0}, at_most(1.05)).holds == "NO"
    assert row("a", {"ours": 1.0}).holds == ""


def test_a_column_of_zeros_is_shown_and_an_empty_one_is_not() -> None:
    rows = [Row("a", ours=0.0), Row("b", ours=0.0)]
    assert [one.header for one in table_of("title", rows, 0).columns] == ["figure", "hotplate"]


def test_what_a_node_has_is_not_read_from_the_origin_again(tmp_path: Path) -> None:
    """The smallest part of the table, through the command."""
    file = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "loadtests" / "bench.py"), "--quick", "cache.restart"]
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["benchmarks"]["cache.restart"]["rows"]
    assert [one["holds"] for one in rows] == ["yes"] * 3


@contextmanager
def _running_origin(model: ModelFile) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "loadtests.programs.origin", str(model.root)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process, json.loads(process.stdout.readline())["port"]
        process.stdin.close()


def _get(
    connection: HTTPConnection, path: str, headers: dict[str, str] | None = None
) -> HTTPResponse:
    connection.request("GET", path, headers=headers or {})
    return connection.getresponse()


def _head(connection: HTTPConnection, path: str) -> HTTPResponse:
    connection.request("HEAD", path)
    answer = connection.getresponse()
    answer.read()
    return answer
