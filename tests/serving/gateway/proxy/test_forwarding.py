from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def test_a_stream_is_passed_on_piece_by_piece(kitchen: Kitchen) -> None:
    next_piece = asyncio.Queue[bytes]()

    async def tokens(request: Request, connection: Connection) -> None:
        connection.begin_chunks("Content-Type: text/event-stream\r\n")
        while piece := await next_piece.get():
            connection.chunk(piece)
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/tokens", tokens)
    await kitchen.wake()
    caller = await kitchen.send("/tokens", method="POST", body=b"")
    status, headers = await caller.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    for piece in (b"data: a\n\n", b"data: b\n\n"):
        next_piece.put_nowait(piece)
        assert await caller.chunk() == piece
    next_piece.put_nowait(b"")
    assert await caller.chunk() == b""


@pytest.mark.parametrize(
    ("framing", "slots"),
    [
        ("Content-Length: 9", 2),
        ("Transfer-Encoding: chunked", 2),
        ("Transfer-Encoding: chunked", 1),
    ],
)
async def test_a_body_is_passed_on_piece_by_piece_as_it_comes(
    kitchen: Kitchen, framing: str, slots: int
) -> None:
    """The next piece is sent only when the replica has the one before. The only slot of a route is
    lent to chunks that stand still, as they may wait for an answer."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(request: Request, connection: Connection) -> None:
        for _ in range(3):
            if "transfer-encoding" in request.headers:
                await connection.reader.readuntil(b"\r\n")
            heard.put_nowait(await connection.reader.readexactly(3))
            if "transfer-encoding" in request.headers:
                await connection.reader.readuntil(b"\r\n")
        if "transfer-encoding" in request.headers:
            await connection.reader.readuntil(b"\r\n\r\n")
        connection.answer(b"heard")

    kitchen.backend.on("/listen", listen, raw=True)
    kitchen.limit(stall_s=0.1)
    await kitchen.wake(slots)
    caller = await kitchen.caller()
    caller.send_raw(f"POST /listen HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode())
    for piece in (b"abc", b"def", b"ghi"):
        caller.send_raw(b"3\r\n%b\r\n" % piece if "chunked" in framing else piece)
        assert await heard.get() == piece
    if "chunked" in framing:
        caller.send_raw(b"0\r\n\r\n")
    assert (await caller.answer()).body == b"heard"


@pytest.mark.parametrize(("slots", "hold_bytes"), [(1, 16 << 20), (1, 1 << 20), (2, 1 << 20)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_large_bodies_arrive_whole(
    kitchen: Kitchen, chunked: bool, slots: int, hold_bytes: int
) -> None:
    """Beside a spare slot they stream through, else they wait until they are whole, in memory and
    then in a file."""
    kitchen.limit(hold_bytes=hold_bytes)
    await kitchen.wake(slots)
    body = bytes(range(256)) * 40_000
    caller = await kitchen.caller()
    if chunked:
        caller.send_raw(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 100_000):
            piece = body[at : at + 100_000]
            caller.send_raw(b"%x\r\n%b\r\n" % (len(piece), piece))
        caller.send_raw(b"0\r\n\r\n")
    else:
        caller.send("/echo", method="POST", body=body)
    assert (await caller.answer()).body == body
    assert kitchen.server.bodies.spooled_bytes == 0
    assert kitchen.server.bodies.held_bytes == 0


async def test_a_caller_that_reads_nothing_slows_the_replica_down(kitchen: Kitchen) -> None:
    sent = 0

    async def flood(request: Request, connection: Connection) -> None:
        nonlocal sent
        connection.begin_chunks()
        for _ in range(400):
            connection.chunk(bytes(1 << 16))
            await connection.writer.drain()
            sent += 1 << 16
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/flood", flood)
    await kitchen.wake()
    caller = await kitchen.send("/flood")
    await caller.head()
    held = -1
    while held != sent:
        held = sent
        await asyncio.sleep(0.1)
    assert 0 < sent < 20 << 20
    total = 0
    while data := await caller.chunk():
        total += len(data)
    assert total == 400 << 16


async def test_a_replica_that_reads_nothing_slows_the_caller_down(kitchen: Kitchen) -> None:
    async def lazy(request: Request, connection: Connection) -> None:
        await kitchen.backend.gate.wait()
        request.body = await connection.read_body(request.headers)
        connection.answer(str(len(request.body)).encode())

    kitchen.backend.on("/lazy", lazy, raw=True)
    await kitchen.wake(2)
    caller = await kitchen.caller()
    size = 40 << 20
    caller.send_raw(b"POST /lazy HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
    caller.send_raw(bytes(size))
    left = -1
    while left != caller.writer.transport.get_write_buffer_size():
        left = caller.writer.transport.get_write_buffer_size()
        await asyncio.sleep(0.1)
    assert left > 10 << 20
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == str(size).encode()


async def test_continue_is_said_at_once_and_once(kitchen: Kitchen) -> None:
    """A slot is for bodies that are here, so it is not waited for before one is asked for."""
    caller = await kitchen.caller()
    caller.send_raw(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    )
    assert await caller.head() == (100, {})
    assert kitchen.server.queue.queued == 0
    caller.send_raw(b"abc")
    await until(lambda: kitchen.server.queue.queued == 1)
    await kitchen.wake()
    assert (await caller.answer()).body == b"abc"
    assert "expect" not in kitchen.backend.requests[0].headers


async def test_what_is_refused_whatever_follows_is_refused_before_its_body(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(token_digests=(sha256(b"secret").hexdigest(),))
    for expect in (b"", b"Expect: 100-continue\r\n"):
        caller = await kitchen.caller()
        caller.send_raw(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n" + expect + b"\r\n"
        )
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (401, "unauthorized")
