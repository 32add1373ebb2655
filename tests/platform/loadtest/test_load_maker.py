"""Real Locust carries out plans against a real server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import ssl
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotplate.platform.errors import CannotStart
from hotplate.platform.loadtest import plan as plans
from hotplate.platform.loadtest import samples
from hotplate.platform.loadtest.load_maker import LoadMaker
from hotplate.platform.loadtest.plan import LoadPlan
from hotplate.platform.loadtest.samples import RECORD, RequestSample
from tests.support.certificates import issue
from tests.support.load_target import EVENTS, ORGANIZATION, LoadTarget, load_target
from tests.support.patience import until
from tests.support.ports import free_port

GRACE_S = 10.0
LEAD_S = 0.2
Make = Callable[..., Coroutine[Any, Any, LoadMaker]]


@pytest.fixture
async def target() -> AsyncIterator[LoadTarget]:
    async with load_target() as target:
        yield target


@pytest.fixture
def make() -> Iterator[Make]:
    """Has Locust carry out a plan with these fields; it is stopped at the test's end."""
    makers: list[LoadMaker] = []

    async def make(
        folder: Path,
        due_s: Sequence[float] = (),
        payloads: Sequence[bytes] = (),
        token: str = "",
        **fields: Any,
    ) -> LoadMaker:
        os.makedirs(folder, exist_ok=True)
        told: dict[str, Any] = {"kind": "call", "duration_s": 1.0, "timeout_s": 30.0} | fields
        plan = LoadPlan(started_at=0.0, **told)
        maker = LoadMaker(folder, plan)
        makers.append(maker)
        maker.start()
        await until(lambda: maker.ready)
        plan = replace(plan, started_at=datetime.now(UTC).timestamp() + LEAD_S)
        plans.write(folder, plan, due_s, payloads, token)
        return maker

    yield make
    for maker in makers:
        maker.stop(GRACE_S)


async def ended(maker: LoadMaker) -> None:
    await until(lambda: not maker.running())
    assert maker.last_words == ""


def written(folder: Path) -> list[RequestSample]:
    """By all processes, in order of the requests' numbers."""
    found = [one for file in folder.glob("samples-*.bin") for one in samples.read(file)]
    return sorted(found, key=lambda sample: sample.number)


def complaints(folder: Path) -> list[dict[str, Any]]:
    files = folder.glob("complaints-*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def test_each_request_is_sent_when_it_is_due_by_its_process_and_organization(
    tmp_path: Path, target: LoadTarget, make: Make
) -> None:
    due_s = [number / 100 for number in range(60)]
    maker = await make(
        tmp_path,
        due_s,
        [b'{"n": 0}', b'{"n": 1}'],
        url=target.url,
        route="/echo",
        processes=2,
        organization_header=ORGANIZATION,
        organizations=("acme", "beta"),
        turns=(0, 0, 1),
    )
    await ended(maker)
    found = written(tmp_path)
    assert [sample.due_s for sample in found] == due_s
    assert all(
        sample.due_s <= sample.sent_s <= sample.first_byte_s <= sample.end_s for sample in found
    )
    assert {sample.status for sample in found} == {200}
    assert [sample.organization for sample in found] == [0, 0, 1] * 20
    for process in (0, 1):
        own = samples.read(tmp_path / plans.SAMPLES.format(process))
        assert {sample.number % 2 for sample in own} == {process}
    expected = Counter((("acme", "acme", "beta")[n % 3], f'{{"n": {n % 2}}}') for n in range(60))
    assert Counter(target.posted) == expected


async def test_a_server_that_hangs_is_asked_on_and_latency_counts_from_when_it_was_due(
    tmp_path: Path, target: LoadTarget, make: Make
) -> None:
    due_s = [number / 50 for number in range(40)]
    maker = await make(tmp_path, due_s, url=target.url, route="/held")
    await until(lambda: target.arrived["POST /held"] == 40)
    target.answers.set()
    await ended(maker)
    found = written(tmp_path)
    assert len(found) == 40
    assert found[0].latency_s >= due_s[-1]


async def test_a_stop_leaves_whole_records_of_all_processes(
    tmp_path: Path, target: LoadTarget, make: Make
) -> None:
    due_s = [number / 200 for number in range(12_000)]
    fields = {"url": target.url, "route": "/echo", "duration_s": 60.0, "processes": 2}
    maker = await make(tmp_path, due_s, **fields)
    await until(lambda: len(written(tmp_path)) > 100)
    maker.stop(GRACE_S)
    assert not maker.running() and maker.last_words == ""
    for process in (0, 1):
        content = (tmp_path / plans.SAMPLES.format(process)).read_bytes()
        assert content and len(content) % RECORD.size == 0
    found = written(tmp_path)
    assert {sample.status for sample in found} == {200}
    assert len({sample.number for sample in found}) == len(found)


async def test_users_of_a_closed_loop_take_a_redirect_for_an_answer(
    tmp_path: Path, target: LoadTarget, make: Make
) -> None:
    fields = {"url": target.url, "route": "/moved", "users": 3, "duration_s": 0.5}
    await ended(await make(tmp_path, [0.0, 0.0, 0.2], token="secret", **fields))
    found = written(tmp_path)
    assert {sample.status for sample in found} == {302}
    assert {sample.number % 3 for sample in found} == {0, 1, 2}
    assert all(sample.due_s == pytest.approx(sample.sent_s, abs=0.01) for sample in found)
    assert set(target.arrived) == {"POST /moved"}
    assert len(target.connections) == 3 and target.tokens == {"Bearer secret"}
    assert min(sample.sent_s for sample in found if sample.number % 3 == 2) >= 0.2
    assert [one["status"] for one in complaints(tmp_path)] == [302] * min(20, len(found))


async def test_streams_tasks_and_connections_that_end(
    tmp_path: Path, target: LoadTarget, make: Make
) -> None:
    async def ended_one(name: str, route: str, url: str = target.url, every_s: float = 0.1) -> None:
        fields = {"url": url, "route": route, "kind": name.split()[0]}
        await ended(await make(tmp_path / name, [n * every_s for n in range(8)], **fields))

    async with asyncio.TaskGroup() as group:
        group.create_task(ended_one("stream", "/stream"))
        group.create_task(ended_one("task", "/stream"))
        group.create_task(ended_one("stream cut", "/cut"))
        # A call on a connection that is being closed would have no answer.
        group.create_task(ended_one("call closing", "/closing", every_s=0.25))
        group.create_task(ended_one("call nobody", "/", f"http://127.0.0.1:{free_port()}"))
    found = {name: written(tmp_path / name) for name in os.listdir(tmp_path)}
    assert {name: len(samples) for name, samples in found.items()} == dict.fromkeys(found, 8)
    assert {
        sample.status for name in ("stream", "task", "call closing") for sample in found[name]
    } == {200}
    assert {sample.events for sample in found["stream"]} == {EVENTS}
    gaps = array("f", (tmp_path / "stream" / samples.GAPS.format(0)).read_bytes())
    assert len(gaps) == 8 * (EVENTS - 1)
    assert all(
        sample.has_begun and sample.first_byte_s < sample.end_s for sample in found["stream"]
    )
    assert {(s.status, s.events) for s in found["stream cut"]} == {(samples.NO_ANSWER, 2)}
    assert target.arrived["GET /stream/get"] == 8
    assert {(s.status, s.has_begun) for s in found["call nobody"]} == {(samples.NO_ANSWER, False)}
    assert "refused" in complaints(tmp_path / "call nobody")[0]["text"]


async def test_a_server_that_answers_before_it_has_the_body_has_answered(
    tmp_path: Path, make: Make
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\ntoo much")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        due_s, body = [number / 10 for number in range(5)], b'"%b"' % (b"x" * 8_000_000)
        await ended(await make(tmp_path, due_s, [body], url=f"http://{host}:{port}", route="/"))
    assert [sample.status for sample in written(tmp_path)] == [413] * 5
    assert complaints(tmp_path)[0] == {"status": 413, "text": "too much"}


async def test_certificates_are_checked_and_a_process_that_is_killed_is_told(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = issue(tmp_path, "own")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    fields = {"route": "/echo", "duration_s": 60.0, "processes": 2}
    due_s = [number / 50 for number in range(3000)]
    async with load_target(tls) as target:
        unknown = await make(tmp_path / "unknown", [0.0], url=target.url, route="/echo")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        known = await make(tmp_path / "known", due_s, url=target.url, **fields)
        await ended(unknown)
        await until(lambda: len(written(tmp_path / "known")) > 50)
        assert len(target.connections) < len(target.posted)
        (master,) = (
            child for child in psutil.Process().children() if str(tmp_path) in str(child.cmdline())
        )
        master.children()[0].kill()
        await until(lambda: not known.running())
    assert {sample.status for sample in written(tmp_path / "known")} == {200}
    assert known.last_words == "a process of the load maker was killed"
    assert "certificate" in complaints(tmp_path / "unknown")[0]["text"]


async def test_a_plan_that_is_none_has_last_words(tmp_path: Path, make: Make) -> None:
    maker = await make(tmp_path, url="nowhere", route="/")
    await until(lambda: not maker.running())
    assert "'nowhere' is no address" in maker.last_words


def test_without_locust_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    plan = LoadPlan("http://127.0.0.1", "/", "call", duration_s=1.0, started_at=0.0)
    with pytest.raises(CannotStart, match=r"pip install 'hotplate\[loadtest\]'"):
        LoadMaker(tmp_path, plan).start()
