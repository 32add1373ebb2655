"""The stream of what changes, over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector

from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.phases import unix_now
from hotplate.platform.api.hotplate.streaming import hub, overviews, reader, tables
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.event_stream import STREAM, streaming
from tests.support.control_plane.streamed_api import Served
from tests.support.patience import until

SUMMARY = "/api/v1/hotplate/deployments"


@pytest.fixture
async def served(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> AsyncIterator[Served]:
    made = Served(store, blobs, controller, tmp_path)
    await made.start()
    yield made
    await controller.settled()
    await made.stop()


@pytest.fixture
async def cloud(served: Served, store: Store) -> AsyncIterator[Cloud]:
    """An operator, with the deployment `echo`."""
    assert served.server is not None
    async with Cloud(served.server, store, operator=True) as cloud:
        await cloud.push_bento()
        await cloud.deploy("echo")
        await served.controller.settled()
        yield cloud


async def test_deployments_are_told_as_the_api_shows_them(cloud: Cloud, served: Served) -> None:
    async with streaming(cloud.http, "deployments") as stream:
        first = await stream.until("deployments")
        assert first.data["whole"]
        assert first.data["items"] == await cloud.call("GET", SUMMARY)
        await cloud.deploy("other")
        await served.controller.settled()
        told = {one["name"] for one in (await stream.until("deployments")).data["items"]}
        assert told == {"other"}, "of those that have not changed nothing is told"
        await cloud.call("DELETE", "/api/v2/deployments/other")
        gone: list[str] = []
        while not gone:
            gone = (await stream.until("deployments")).data["gone"]
        assert gone == ["other"]


async def test_the_first_event_lists_as_the_api_does(cloud: Cloud, served: Served) -> None:
    for name in ("b", "a", "c"):
        await cloud.deploy(name)
    await served.controller.settled()
    async with streaming(cloud.http, "deployments") as stream:
        names = [one["name"] for one in (await stream.until("deployments")).data["items"]]
    assert names == ["c", "a", "b", "echo"]


async def test_one_deployment_is_told_whole_and_null_when_it_is_gone(
    cloud: Cloud, served: Served
) -> None:
    one = f"{SUMMARY}/echo"
    async with streaming(cloud.http, "deployment:echo") as stream:
        assert (await stream.next()).data == await cloud.call("GET", one)
        await cloud.call(
            "PUT", "/api/v2/deployments/echo", {"bento": "echo:v1", "access_authorization": True}
        )
        told = await stream.next()
        while not told.data["config"]["access_authorization"]:
            told = await stream.next()
        await cloud.call("DELETE", "/api/v2/deployments/echo")
        while told.data is not None:
            told = await stream.next()
        await cloud.deploy("echo")
        while told.data is None:
            told = await stream.next()
        assert told.data["name"] == "echo"


@pytest.mark.parametrize("topic", ["deployments", "deployment:echo"])
async def test_what_is_true_of_a_moment_is_told_when_it_is_over(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Nothing says that requests have become fewer."""
    per_s, summary = [2.0], served.status.summary

    def with_rates(*args: Any) -> dict[str, Any]:
        return summary(*args) | {"rates": {"requests_per_s": per_s[-1], "errors_per_s": 0}}

    monkeypatch.setattr(served.status, "summary", with_rates)
    async with streaming(cloud.http, topic) as stream:
        for rate in (2.0, 1.0, 0.0):
            per_s.append(rate)
            told = (await stream.until(topic)).data
            shown = told if topic != "deployments" else told["items"][0]
            assert shown["rates"]["requests_per_s"] == rate


async def test_a_log_is_told_as_it_grows(cloud: Cloud, served: Served, tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    log.write_text("one\ntwo\n")
    served.controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready"}]
    served.controller.log_files = {"r-1": log}
    async with streaming(cloud.http, "logs:echo") as stream:
        lines: list[Any] = []
        while len(lines) < 2:
            lines += (await stream.until("logs:echo")).data["lines"]
        old = {"replica": "r-1", "at": None}
        assert lines == [old | {"text": "one"}, old | {"text": "two"}]
        with log.open("a") as file:
            file.write("thr")
            file.flush()
            file.write("ee\n<script>\u202e\x1b[2J\n")
        other.write_text("from the other\n")
        served.controller.log_files["r-2"] = other
        served.controller.replicas.append({"id": "r-2", "service": "Echo", "state": "ready"})
        while len(lines) < 5:
            told = (await stream.until("logs:echo")).data
            assert told["dropped"] == 0
            lines += told["lines"]
        texts = [line["text"] for line in lines if line["replica"] == "r-1"]
        assert texts[2] == "three"
        assert texts[3].startswith("<script>")
        assert ("r-2", "from the other") in [(line["replica"], line["text"]) for line in lines]
        assert all(abs(line["at"] - unix_now()) < 60 for line in lines[2:]), "it saw them come"
    async with streaming(cloud.http, "logs:echo/r-2") as stream:
        told = await stream.until("logs:echo/r-2")
        while not told.data["lines"]:
            told = await stream.until("logs:echo/r-2")
        assert told.data["lines"] == [{"replica": "r-2", "text": "from the other", "at": None}]


async def test_events_are_told_when_they_happen(cloud: Cloud, served: Served) -> None:
    served.events.add("UpStarted", "hotplate up was started")
    shown = "/api/v1/hotplate/events"
    async with streaming(cloud.http, "events") as stream:
        first = await stream.until("events")
        assert first.data["items"] == await cloud.call("GET", shown)
        served.events.add("RoleEnded", "the gateway has ended")
        told = await stream.until("events")
        assert [one["kind"] for one in told.data["items"]] == ["RoleEnded"]
        await cloud.deploy("other")
        told = await stream.until("events")
        assert {one["deployment"] for one in told.data["items"]} == {"other"}


async def test_the_platform_is_told_to_operators_when_it_changes(
    cloud: Cloud, served: Served
) -> None:
    async with streaming(cloud.http, "platform") as stream:
        assert (await stream.next()).data == await cloud.call("GET", "/api/v1/hotplate/platform")
        served.free_bytes = 5
        assert (await stream.next()).data["disks"][0]["free_bytes"] == 5
    async with Cloud(cloud.server, cloud.store, name="dev", role=MemberRole.DEVELOPER) as dev:
        answer = await dev.http.get(STREAM, params={"topics": "deployments,platform"})
        assert answer.status == 403
        assert "operator" in await answer.text()


async def test_disks_and_memory_that_change_all_the_time_are_told_now_and_then(
    cloud: Cloud, served: Served
) -> None:
    now = asyncio.get_running_loop().time
    async with streaming(cloud.http, "platform") as stream:
        for _ in range(2):
            await stream.next()
            told_at, served.free_bytes = now(), served.free_bytes + 1
        await stream.next()
        assert now() - told_at > overviews.AMOUNTS_S / 2


async def test_nobody_is_told_of_another_organization_s(cloud: Cloud, served: Served) -> None:
    served.events.add("UpStarted", "hotplate up was started")
    served.controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready"}]
    topics = "deployments,deployment:echo,logs:echo,logs:echo/r-1,events"
    async with (
        Cloud(cloud.server, cloud.store, "rival", name="rob") as rival,
        streaming(rival.http, topics) as stream,
    ):
        told: dict[str, Any] = {}
        while len(told) < 5:
            event = await stream.next()
            told[event.name] = event.data
        assert told == {
            "deployments": {"items": [], "gone": [], "whole": True},
            "deployment:echo": None,
            "logs:echo": {"lines": [], "dropped": 0},
            "logs:echo/r-1": {"lines": [], "dropped": 0},
            "events": {"items": []},
        }
        await cloud.deploy("other")
        await rival.push_bento()
        await rival.deploy("mine")
        names = [one["name"] for one in (await stream.until("deployments")).data["items"]]
        assert names == ["mine"], "what the other organization did was told before, if at all"


async def test_who_is_cut_off_goes_on_without_a_hole(cloud: Cloud, served: Served) -> None:
    async with streaming(cloud.http, "deployments,events") as stream:
        await stream.until("deployments")
        last = await stream.until("events")
    await cloud.deploy("other")
    await served.controller.settled()
    async with streaming(cloud.http, "deployments,events", last.id) as stream:
        told = await stream.next()
        assert told.name != "reset"
        while told.name != "deployments":
            told = await stream.next()
        assert "whole" not in told.data
        assert [one["name"] for one in told.data["items"]] == ["other"]


async def test_who_is_cut_off_within_an_event_gets_it_again(cloud: Cloud, served: Served) -> None:
    headers = f"Host: 127.0.0.1\r\nX-YATAI-API-TOKEN: {cloud.token}\r\n"
    line = f"GET {STREAM}?topics=deployments,events HTTP/1.1\r\n{headers}\r\n"
    reading, writing = await asyncio.open_connection("127.0.0.1", served.port)
    writing.write(line.encode())
    cut = await reading.readuntil(b"event: deployments\ndata: {")
    writing.transport.abort()
    assert cut.count(b"id: ") == 1, "it has got no event whole, so it has no id to go on from"
    async with streaming(cloud.http, "deployments,events") as stream:
        assert (await stream.until("deployments")).data["whole"]


async def test_after_a_restart_it_begins_anew_and_says_so(cloud: Cloud, served: Served) -> None:
    async with streaming(cloud.http, "deployments") as stream:
        last = await stream.until("deployments")
        stopping = asyncio.create_task(served.stop())
        with pytest.raises(EOFError):
            await stream.next()
        await stopping
    await served.start()
    async with streaming(cloud.http, "deployments", last.id) as stream:
        reset = await stream.next()
        assert (reset.name, reset.data) == ("reset", {"topics": ["deployments"]})
        assert (await stream.next()).data["whole"]


@pytest.mark.parametrize("how", ["token", "member", "organization"])
async def test_who_may_not_see_it_any_longer_is_told_and_sees_no_more(
    cloud: Cloud, served: Served, store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(reader, "CHECK_S", 0.2)
    other = Cloud(cloud.server, store, "rival", name="rob", role=MemberRole.DEVELOPER)
    tenant = other.user.organization
    async with other, streaming(other.http, "deployments") as stream:
        await stream.until("deployments")
        match how:
            case "token":
                (token,) = store.tokens.tokens(tenant.id)
                store.tokens.revoke_token(tenant.id, token.uid)
            case "member":
                await cloud.http.delete("/api/v1/hotplate/organizations/rival/members/rob")
            case "organization":
                await cloud.http.delete("/api/v1/hotplate/organizations/rival?force=true")
        end = await stream.next()
        assert end.name == "end"
        assert end.data["code"] in ("unauthorized", "not_found")
        assert end.data["message"]
        with pytest.raises(EOFError):
            await stream.next()


async def test_that_it_ends_counts_as_no_wrong_try(
    cloud: Cloud, served: Served, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHECK_S", 0.2)
    async with Cloud(cloud.server, store, "rival", name="rob") as other, AsyncExitStack() as open_:
        streams = [
            await open_.enter_async_context(streaming(other.http, "deployments")) for _ in range(30)
        ]
        tenant = other.user.organization
        (token,) = store.tokens.tokens(tenant.id)
        store.tokens.revoke_token(tenant.id, token.uid)
        for stream in streams:
            await stream.until("end")
    async with Cloud(cloud.server, store, "rival", name="eve") as again:
        await again.call("GET", SUMMARY)


async def test_a_comment_comes_when_nothing_else_does(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reader.COMMENT_S == 15.0
    monkeypatch.setattr(reader, "COMMENT_S", 0.2)
    async with streaming(cloud.http, "deployment:nobody") as stream:
        assert (await stream.next()).data is None
        line = await stream.response.content.readline()
        while line != b": \n":
            line = await stream.response.content.readline()


async def test_what_a_slow_reader_did_not_take_is_joined(
    cloud: Cloud, served: Served, tmp_path: Path
) -> None:
    """The list says only what is there in the end, and the log how many lines were missed."""
    log = tmp_path / "log"
    log.write_text("")
    served.controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready"}]
    served.controller.log_files = {"r-1": log}
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(
            f"GET {STREAM}?topics=logs:echo HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"X-YATAI-API-TOKEN: {cloud.token}\r\n\r\n".encode()
        )
        async with streaming(cloud.http, "logs:echo") as quick:
            await quick.next()
            lines, got = 100_000, 0
            text = "".join(f"{number:6d} {'x' * 100}\n" for number in range(lines))
            await asyncio.to_thread(log.write_text, text)
            last = ""
            while not last.startswith(f"{lines - 1:6d}"):
                told = (await quick.until("logs:echo")).data
                got += len(told["lines"]) + told["dropped"]
                last = told["lines"][-1]["text"] if told["lines"] else last
            assert got == lines
        data = await asyncio.to_thread(_all_until, slow, f"{lines - 1:6d} x".encode())
    events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
    dropped = sum(event["dropped"] for event in events)
    assert dropped > 0, "it was behind what is kept"
    assert dropped + sum(len(event["lines"]) for event in events) == lines
    assert len(data) < len(text), "and did not get all of it"


def _all_until(slow: socket.socket, end: bytes) -> bytes:
    """What comes up to the event with that end, without the chunks' lengths."""
    slow.settimeout(20)
    raw = bytearray()
    while end not in raw[-400_000:] or not raw.endswith(b"\n\n\r\n"):
        raw += slow.recv(1 << 16)
    body, data = bytes(raw).partition(b"\r\n\r\n")[2], bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        data += body[:length]
        body = body[length + 2 :]
    return bytes(data)


async def test_what_a_hundred_readers_are_told_is_made_once(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    one_line = tables.one_line

    def counted(value: Any) -> str:
        made.append(1)
        return one_line(value)

    monkeypatch.setattr(tables, "one_line", counted)
    async with AsyncExitStack() as open_:
        http = await open_.enter_async_context(
            ClientSession(
                cloud.url,
                headers={"X-YATAI-API-TOKEN": cloud.token},
                connector=TCPConnector(limit=0),
            )
        )
        streams = [
            await open_.enter_async_context(streaming(http, "deployments")) for _ in range(100)
        ]
        for stream in streams:
            await stream.until("deployments")
        assert len(made) == 1
        await cloud.deploy("other")
        await served.controller.settled()
        for stream in streams:
            told = (await stream.until("deployments")).data
            assert [one["name"] for one in told["items"]] == ["other"]
        assert 2 <= len(made) <= 4
        assert served.streams.hub.watched == 1


async def test_nothing_is_looked_at_while_nobody_listens(cloud: Cloud, served: Served) -> None:
    live = served.streams.hub
    before = {task.get_name() for task in asyncio.all_tasks()}
    assert live.watched == 0
    topics = "deployments,deployment:echo,logs:echo,events,platform"
    async with streaming(cloud.http, topics) as stream:
        await stream.next()
        assert live.watched == 5
    await until(lambda: live.watched == 0)
    await until(
        lambda: (
            not any(
                task.get_name().startswith("live ") and task.get_name() not in before
                for task in asyncio.all_tasks()
            )
        )
    )


async def test_what_fails_is_told_again_when_it_works(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "RETRY_S", 0.1)
    live, fails = served.controller.live, [True]

    def failing(deployment_id: int) -> dict[str, Any]:
        if fails:
            fails.pop()
            raise RuntimeError("a bug")
        return live(deployment_id)

    monkeypatch.setattr(served.controller, "live", failing)
    async with streaming(cloud.http, "deployments") as stream:
        assert (await stream.until("deployments")).data["whole"]


async def test_other_topics_and_methods_are_refused(cloud: Cloud) -> None:
    for topics in ("", "secrets", "logs:"):
        answer = await cloud.http.get(STREAM, params={"topics": topics})
        assert answer.status == 400
    assert (await cloud.http.head(STREAM)).status == 405
