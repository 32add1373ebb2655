"""The control plane's API while its PostgreSQL is restarted, full, read-only or slow: callers get
what they asked for or a 503 with one sentence, what was acknowledged is there afterwards, and the
same process goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from sqlalchemy import make_url, text

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.hotplate.health import HealthRoutes
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from tests.support.control_plane import postgresql
from tests.support.control_plane.cloud import MANIFEST, Cloud, versions
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import until
from tests.support.ports import free_port

SLOW_S = 5.0
LAG_S = 1.0
"""Longer than the loop stands still on a machine that has other things to do, too."""
ECHO = versions("bento", "echo")


@dataclass
class Told:
    """What callers were told."""

    made: set[str] = field(default_factory=set)
    """Bentos that were acknowledged."""
    refused: list[str] = field(default_factory=list)
    """The sentences of 503s."""
    other: list[str] = field(default_factory=list)
    """What nobody may be told."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL that these tests have for themselves, as they stop it."""
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server(max_connections=10) as url:
        yield url


@pytest.fixture
def url(server: str) -> str:
    return postgresql.database(server)


@pytest.fixture
async def cloud(url: str, tmp_path: Path) -> AsyncIterator[Cloud]:
    store = Store(Database(url))
    app = make_app(
        store, BlobStore(f"file://{tmp_path}/blobs"), FakeController(store), ApiSettings()
    )
    app.add_routes(HealthRoutes(store, lambda: True, lambda: 1).routes())
    async with TestServer(app) as served, Cloud(served, store) as cloud:
        await cloud.register("bento", "echo", "first")
        yield cloud
    store.close()


async def test_a_restart_loses_nothing_that_was_acknowledged(cloud: Cloud, server: str) -> None:
    async with asked(cloud) as told:
        await until(lambda: len(told.made) > 5)
        await asyncio.to_thread(postgresql.stop, server)
        await until(lambda: len(told.refused) > 5)
        await asyncio.to_thread(postgresql.start, server)
        await goes_on(told)
    assert await kept(cloud) >= told.made


async def test_a_server_without_a_connection_left_is_waited_for(
    cloud: Cloud, server: str, url: str
) -> None:
    async with asked(cloud) as told:
        with postgresql.connections_taken(server, url):
            await until(lambda: any("clients already" in sentence for sentence in told.refused))
        await goes_on(told)
    assert await kept(cloud) >= told.made


async def test_a_server_that_takes_reads_only_is_read(cloud: Cloud, server: str) -> None:
    postgresql.set_read_only(server, True)
    try:
        async with asked(cloud) as told:
            await until(lambda: any("read-only" in sentence for sentence in told.refused))
            assert "first" in await kept(cloud)
            postgresql.set_read_only(server, False)
            await goes_on(told)
    finally:
        postgresql.set_read_only(server, False)
    assert await kept(cloud) >= told.made


async def test_a_slow_server_holds_up_neither_the_loop_nor_the_health_check(
    cloud: Cloud, url: str
) -> None:
    """A table is locked for 5 s, as by somebody's maintenance."""
    now = asyncio.get_running_loop().time
    with postgresql.connected(url) as other, other.begin():
        other.execute(text("LOCK TABLE artifacts IN ACCESS EXCLUSIVE MODE"))
        waiting = asyncio.create_task(cloud.register("bento", "echo", "late"))
        blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        await until(lambda: other.scalar(blocked))
        began, lag_s = now(), 0.0
        health = asyncio.create_task(cloud.http.get("/healthz"))
        while now() - began < SLOW_S:
            due = now() + 0.05
            await asyncio.sleep(0.05)
            lag_s = max(lag_s, now() - due)
        assert health.done(), "the health check waits for the database"
        assert not waiting.done()
    assert lag_s < LAG_S
    async with await health as answer:
        assert answer.status == 503
        assert "has not answered for 2 s" in (await answer.json())["error"]["message"]
    assert (await waiting)["version"] == "late"
    assert (await cloud.call("GET", "/healthz"))["status"] == "ok"


async def test_a_lock_that_is_never_let_go_is_a_503_and_not_a_wait_without_end(
    cloud: Cloud, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.store.database.ANSWER_S", 0.5)
    with postgresql.connected(url) as other, other.begin():
        other.execute(text("LOCK TABLE artifacts IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(StoreFailed, match=r"has not answered for 0\.5 s; what was asked may"):
            await cloud.store.run(cloud.store.artifacts.named_files)
    await until(lambda: cloud.store.artifacts.named_files() == frozenset())


def test_a_server_is_given_limits_but_for_those_of_the_url(url: str) -> None:
    def limits(url: str) -> list[object]:
        database = Database(url)
        with database.session() as session:
            names = "lock_timeout", "statement_timeout"
            found = [session.scalar(text(f"SHOW {name}")) for name in names]
        database.close()
        return found

    assert limits(url) == ["10s", "30s"]
    own = make_url(url).update_query_dict({"options": "-c lock_timeout=1000"})
    assert limits(own.render_as_string(False)) == ["1s", "0"]


def test_a_control_plane_whose_server_is_down_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "hotplate.toml").write_text(
        f'[platform]\ndatabase_url = "postgresql://hotplate:hidden@/postgres?host={tmp_path}"\n'
    )
    command = ["control-plane", "--data", str(tmp_path), "--port", str(free_port())]
    ended = subprocess.run(
        [sys.executable, "-m", "hotplate.platform.cli", *command, "--agent", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "cannot be opened (connection" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hidden" not in ended.stderr


@asynccontextmanager
async def asked(cloud: Cloud) -> AsyncIterator[Told]:
    """Callers that read and push until the block ends, one after another each."""
    told, done = Told(), asyncio.Event()

    async def ask(method: str, path: str, body: object) -> bool:
        async with cloud.http.request(method, path, json=body) as answer:
            if answer.status == 200:
                return True
            said = await answer.json()
        error = said.get("error", {})
        sentence = error.get("message", "")
        one = "\n" not in sentence and "Traceback" not in sentence
        if answer.status == 503 and "Retry-After" in answer.headers and one and sentence:
            told.refused.append(sentence)
        else:
            told.other.append(f"{answer.status} {said}")
        return False

    async def push(worker: int) -> None:
        for number in range(10**6):
            if done.is_set():
                return
            draft = {"version": f"v{worker}-{number}", "manifest": MANIFEST, "build_at": ""}
            if await ask("POST", ECHO, draft | {"description": "", "labels": []}):
                told.made.add(f"v{worker}-{number}")

    async def read() -> None:
        while not done.is_set():
            await ask("GET", "/api/v2/deployments", None)
            await ask("GET", "/healthz", None)

    async with asyncio.TaskGroup() as group:
        for worker in range(2):
            group.create_task(push(worker))
        group.create_task(read())
        try:
            yield told
        finally:
            done.set()
    assert told.other == []


async def goes_on(told: Told) -> None:
    made = len(told.made)
    await until(lambda: len(told.made) > made + 5)


async def kept(cloud: Cloud) -> set[str]:
    """The bentos that the API knows."""
    listed = await cloud.call("GET", f"{ECHO}?start=0&count=1000")
    return {item["version"] for item in listed["items"]}
