"""Callers of the API that send what is no request, or that are slow, or too many."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.connection import ConnectionLimits
from hotplate.platform.api.web.listener import ApiListener
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.artifacts import ArtifactDraft
from hotplate.platform.store.deployments import RevisionDraft
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from tests.support.control_plane.cloud import MODEL_MANIFEST, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController
from tests.support.gateway.callers import Caller
from tests.support.patience import until
from tests.support.patience import until as eventually

LIMITS = ConnectionLimits(connections=300, idle_s=0.3, stall_s=0.3, linger_s=0.1)
BODY_S = 0.3


class Door:
    """The API behind a listener, and one user's token."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._callers: list[Caller] = []
        self.token = f"X-YATAI-API-TOKEN: {token}\r\n".encode()

    def head(self, method: str, path: str, extra: bytes = b"") -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
            + self.token
            + extra
            + b"\r\n"
        )

    async def caller(self) -> Caller:
        caller = await Caller.to(self.port)
        self._callers.append(caller)
        return caller

    async def ask(self, method: str, path: str, body: bytes = b"", extra: bytes = b"") -> int:
        caller = await self.caller()
        length = b"Content-Length: %d\r\n" % len(body)
        caller.send_raw(self.head(method, path, length + extra) + body)
        return (await caller.answer()).status

    def close(self) -> None:
        for caller in self._callers:
            caller.leave()

    async def answers(self) -> bool:
        return await self.ask("GET", "/api/v1/current_org") == 200


@asynccontextmanager
async def opened(
    store: Store,
    blobs: BlobStore,
    limits: ConnectionLimits = LIMITS,
    controller: FakeController | None = None,
) -> AsyncIterator[Door]:
    controller = controller or FakeController(store)
    app = make_app(store, blobs, controller, ApiSettings(body_s=BODY_S, body_idle_s=BODY_S))
    listener = ApiListener(app, limits)
    user = store.identities.ensure_user("acme", "ada", "ada@example.com")
    port = await listener.start("127.0.0.1", 0)
    door = Door(port, store.tokens.add_token(user, "laptop"))
    try:
        yield door
    finally:
        door.close()
        await listener.close()


@pytest.fixture
async def door(
    store: Store, blobs: BlobStore, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Door]:
    """Whatever is sent to it, nothing is logged as a fault of ours and it goes on answering."""
    async with opened(store, blobs) as door:
        yield door
        assert await door.answers()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


POST = "/api/v1/bento_repositories"
WEB_SOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
MALFORMED = {
    "no http": (b"\x16\x03\x01\x02\r\n\r\n", 400),
    "both lengths": (
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a bad url": (b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a NUL": (b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "3000 headers": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 3000 + b"\r\n", 400),
    "a header of 1 MB": (b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
    "a header of 64 KB": (b"GET / HTTP/1.1\r\nX: " + b"a" * (64 << 10) + b"\r\n\r\n", 431),
    "a name of 10,000": (b"GET /api/v2/deployments/" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", 431),
    "a target of 1 MB": (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", 431),
}


@pytest.mark.parametrize(("data", "status"), MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_request_is_refused_in_one_sentence(
    door: Door, data: bytes, status: int
) -> None:
    caller = await door.caller()
    caller.send_raw(data)
    answer = await caller.answer()
    assert answer.status == status
    assert answer.error["code"] in ("bad_request", "head_too_large")
    assert "\n" not in answer.error["message"]
    assert len(answer.error["message"]) < 200
    assert await caller.ended()


async def test_a_body_of_bad_chunks_is_a_400(door: Door) -> None:
    caller = await door.caller()
    chunked = door.head("POST", POST, b"Transfer-Encoding: chunked\r\n")
    caller.send_raw(chunked + b"zz\r\n{}")
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (400, "bad_request")


async def test_an_expectation_that_nobody_knows_is_refused_like_all_else(door: Door) -> None:
    caller = await door.caller()
    caller.send_raw(door.head("GET", "/api/v1/current_org", b"Expect: bogus\r\n"))
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (417, "expectation_failed")


async def test_what_follows_a_body_that_is_longer_than_declared_is_refused(door: Door) -> None:
    caller = await door.caller()
    caller.send_raw(door.head("POST", POST, b"Content-Length: 2\r\n") + b"{}")
    assert (await caller.answer()).error["message"] == "name: null is not a string"
    caller.send_raw(b"{}{}{}\r\n\r\n")
    assert (await caller.answer()).error["code"] == "bad_request"
    assert await caller.ended()


async def test_a_caller_that_leaves_in_the_middle_of_its_body_is_no_fault_of_ours(
    door: Door,
) -> None:
    for send in (b"", b"{"):
        caller = await door.caller()
        caller.send_raw(door.head("POST", POST, b"Content-Length: 100\r\n") + send)
        await caller.writer.drain()
        caller.leave()


async def test_odd_bytes_in_a_token_a_charset_and_a_coding_are_the_callers_fault(
    door: Door,
) -> None:
    odd = b"GET /api/v1/current_org HTTP/1.1\r\nHost: [::1]\r\nX-YATAI-API-TOKEN: \xff\xfe\r\n\r\n"
    caller = await door.caller()
    caller.send_raw(odd)
    assert (await caller.answer()).status == 401
    charset = b"Content-Type: application/json; charset=nope\r\n"
    assert await door.ask("POST", POST, b"{}", charset) == 400
    assert await door.ask("POST", POST, gzip.compress(b"{}"), b"Content-Encoding: gzip\r\n") == 400


async def test_slow_heads_are_closed_slow_bodies_are_a_408_and_others_are_served(
    door: Door,
) -> None:
    heads, bodies = [], []
    for _ in range(100):
        heads.append(await door.caller())
        heads[-1].send_raw(b"GET /api/v1/current_org HTTP/1.1\r\nX-Slow")
        bodies.append(await door.caller())
        bodies[-1].send_raw(door.head("POST", POST, b"Content-Length: 100\r\n") + b"{")
    assert await door.answers()
    for caller in bodies:
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (408, "body_slow")
    for caller in heads:
        assert await caller.ended()


async def test_an_upload_that_stands_still_is_given_up(door: Door, blobs: BlobStore) -> None:
    path = await registered(door)
    caller = await door.caller()
    caller.send_raw(door.head("PUT", f"{path}/upload", b"Content-Length: 100\r\n") + b"x")
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (400, "body_cut")
    assert blobs.used_bytes() == 0


async def test_an_upload_in_gzip_is_kept_as_it_came_until_it_is_checked(
    door: Door, blobs: BlobStore
) -> None:
    """A server that undoes the coding writes a thousand times what was sent."""
    path = await registered(door)
    bomb = gzip.compress(tar_of({"model.yaml": "name: big", "zeros": bytes(64 << 20)}))
    caller = await door.caller()
    lengths = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(bomb)
    caller.send_raw(door.head("PUT", f"{path}/upload", lengths) + bomb)
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (400, "bad_archive")
    assert "more than 200 times their size" in answer.error["message"]
    assert blobs.used_bytes() == 0


async def test_a_caller_that_does_not_read_its_answer_is_cut_off(door: Door) -> None:
    path = await registered(door)
    tar = tar_of({"model.yaml": "name: big\nversion: v1\n", "weights": os.urandom(16 << 20)})
    assert await door.ask("PUT", f"{path}/upload", tar) == 200
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", door.port))
        await loop.sock_sendall(sock, door.head("GET", f"{path}/download"))
        assert await loop.sock_recv(sock, 12) == b"HTTP/1.1 200"
        assert callers_of(door) > 0
        await until(lambda: callers_of(door) == 0)


async def test_a_json_body_of_100_mb_is_refused_before_it_is_kept(door: Door) -> None:
    caller = await door.caller()
    caller.send_raw(door.head("POST", POST, b"Content-Length: %d\r\n" % (100 << 20)) + b'{"a": "')
    answer = await caller.answer()
    assert answer.status == 413
    assert answer.error["message"].startswith(
        "body: it has 104857600 bytes or more (limit 16777216)"
    )
    caller = await door.caller()
    caller.send_raw(door.head("POST", POST, b"Transfer-Encoding: chunked\r\n"))
    with contextlib.suppress(ConnectionError):
        for _ in range(
            17
        ):  # one too many, all of it within the time in which the rest is thrown away
            caller.send_raw(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
            await caller.writer.drain()
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (413, "request_entity_too_large")


class EndlessLog(FakeController):
    """A replica's, of which there is more whenever it is looked at."""

    def __init__(self, store: Store, log: Path) -> None:
        super().__init__(store)
        log.touch()
        self.log_files["r"] = log
        self.replicas = [{"id": "r", "service": "Echo", "state": "ready", "reason": ""}]
        self.looks = 0

    def live(self, deployment_id: int) -> dict[str, Any]:
        self.looks += 1
        with self.log_files["r"].open("a") as log:
            log.write(f"{self.looks}".ljust(1 << 20))
        return super().live(deployment_id)


async def test_a_socket_that_is_never_read_is_cut_off_and_nothing_piles_up(
    store: Store, blobs: BlobStore, tmp_path: Path
) -> None:
    controller = EndlessLog(store, tmp_path / "log")
    async with opened(store, blobs, controller=controller) as door:
        ada = store.identities.ensure_user("acme", "ada", "ada@example.com")
        store.artifacts.ensure_repository(ada.organization.id, Kind.BENTO, "echo", "")
        draft = ArtifactDraft("v1")
        bento = store.artifacts.create(ada.organization.id, Kind.BENTO, "echo", draft)
        store.deployments.create(ada, "echo", RevisionDraft(bento.id, {}))
        handshake = door.head("GET", "/ws/v1/clusters/default/tail?pod_name=echo/r", WEB_SOCKET)
        asked = json.dumps({"payload": {}}).encode()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", door.port))
            await loop.sock_sendall(sock, handshake)
            assert await loop.sock_recv(sock, 12) == b"HTTP/1.1 101"
            no_mask = bytes(4)
            await loop.sock_sendall(sock, bytes((0x81, 0x80 | len(asked))) + no_mask + asked)
            await until(lambda: controller.looks > 1)
            await until(lambda: callers_of(door) == 0)
        assert controller.looks <= 10, "no more than what the system's buffers take"


async def test_a_caller_that_reads_slowly_gets_its_whole_answer(door: Door) -> None:
    path = await registered(door)
    tar = tar_of({"model.yaml": "name: big\nversion: v1\n", "weights": os.urandom(16 << 20)})
    assert await door.ask("PUT", f"{path}/upload", tar) == 200
    caller = await door.caller()
    caller.send_raw(door.head("GET", f"{path}/download"))
    size = int((await caller.head())[1]["content-length"])
    took_s = asyncio.get_running_loop().time()
    for _ in range(8):
        await caller.reader.readexactly(size // 8)
        await asyncio.sleep(LIMITS.stall_s / 3)
    assert asyncio.get_running_loop().time() - took_s > 2 * LIMITS.stall_s


async def test_a_connection_too_many_is_told_so_and_there_is_room_again_after(
    store: Store, blobs: BlobStore
) -> None:
    async with opened(store, blobs, ConnectionLimits(connections=3)) as door:
        held = [await door.caller() for _ in range(3)]
        assert await door.ask("GET", "/healthz") == 503
        refused = await (await door.caller()).answer()
        assert refused.error["code"] == "too_many_connections"
        assert "3 connections are open" in refused.error["message"]
        held[0].writer.close()
        await eventually(door.answers, 5)


async def registered(door: Door) -> str:
    """A model's version without content."""
    caller = await door.caller()
    for path, body in (
        ("/api/v1/model_repositories", {"name": "big", "description": ""}),
        (
            versions("model", "big"),
            {"description": "", "version": "v1", "manifest": MODEL_MANIFEST, "labels": []},
        ),
    ):
        data = json.dumps(body).encode()
        caller.send_raw(door.head("POST", path, b"Content-Length: %d\r\n" % len(data)) + data)
        assert (await caller.answer()).status == 200
    return f"{versions('model', 'big')}/v1"


def callers_of(door: Door) -> int:
    """How many connections it holds."""
    held = psutil.Process().net_connections("tcp")
    return sum(bool(one.raddr) and one.laddr.port == door.port for one in held)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


PROGRAM = """
import asyncio
from aiohttp import web
from hotplate.platform.api.web.listener import ApiListener

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: print(context["message"], flush=True))
    print(await ApiListener(web.Application()).start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_without_descriptors_it_tries_once_a_second_and_then_accepts_who_waits() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        usual = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{process.pid}/fd"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 2, usual[1]))
        callers = [await Caller.to(port) for _ in range(20)]
        assert b"out of system resource" in await process.stdout.readline()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, usual)
        for caller in callers:  # those, too, that came while there was none
            assert (await caller.ask("/")).status == 404
            caller.leave()
    finally:
        process.kill()
        await process.wait()
    assert (await process.stdout.read()).count(b"\n") < 5
