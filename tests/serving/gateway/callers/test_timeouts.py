"""Callers that are slow: they hold no slot, are told so or cut off, and others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from hotplate.serving.gateway.callers.timeouts import Timeouts
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.server import shared
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
LIMITS = Limits()
WHOLE = LIMITS.read_ahead_bytes


def test_a_header_has_its_time_and_a_body_has_some_for_every_piece() -> None:
    patience = Timeouts(Limits(head_s=30, body_s=20))
    for now in range(30):
        patience.read(now, in_head=True, awaits_body=False)
        assert patience.slow(now, sending=False) is None
    assert "header did not come in 30 s" in str(patience.slow(30, sending=False))
    patience.next_part()
    patience.read(40, in_head=False, awaits_body=True)
    patience.read(59, in_head=False, awaits_body=True)
    assert patience.slow(78, sending=False) is None
    assert "Nothing more of the body came in 20 s" in str(patience.slow(79, sending=False))
    patience.read(80, in_head=False, awaits_body=False)
    assert patience.slow(1000, sending=False) is None


def test_a_body_that_a_replica_waits_for_may_last_but_not_stand_still() -> None:
    patience = Timeouts(Limits(body_s=20))
    for now in range(0, 200, 19):
        patience.read(now, in_head=False, awaits_body=False)
        assert patience.slow(now + 19, sending=True) is None
    assert "Nothing more of the body" in str(patience.slow(now + 20, sending=True))


def test_the_time_in_which_we_do_not_read_is_not_the_callers() -> None:
    patience = Timeouts(Limits(body_s=20))
    patience.read(0, in_head=False, awaits_body=True)
    patience.resumed(100)
    assert patience.slow(119, sending=True) is None
    assert patience.slow(120, sending=True) is not None


def test_a_caller_that_takes_a_little_is_slow_and_one_that_takes_nothing_is_cut() -> None:
    patience = Timeouts(Limits(take_s=30))
    patience.full(0, 1000)
    assert not patience.takes_nothing(29, 1000)
    assert not patience.takes_nothing(30, 999)
    assert not patience.takes_nothing(59, 999)
    assert patience.takes_nothing(60, 999)


def hurried(kitchen: Kitchen, **limits: float) -> None:
    """Short times instead of the usual ones, for the connections that follow."""
    kitchen.limit(sweep_s=0.05, **limits)


async def test_a_slow_header_is_a_408(kitchen: Kitchen) -> None:
    hurried(kitchen, head_s=0.2)
    caller = await kitchen.caller()
    caller.send_raw(b"GET / HTTP/1.1\r\nHost")
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (408, "request_slow")
    assert await caller.ended()


@pytest.mark.parametrize("sent_bytes", [0, 5, 70_000, 2_000_000])
@pytest.mark.parametrize(
    "framing",
    [b"Transfer-Encoding: chunked\r\n\r\n400000\r\n", b"Content-Length: 4194304\r\n\r\n"],
)
async def test_silent_bodies_cost_nobody_else_the_only_slot(
    kitchen: Kitchen, framing: bytes, sent_bytes: int
) -> None:
    """However much of them has come, and whether or not somebody came before them."""
    hurried(kitchen)  # but for how long is silence: nobody is to think that these wait for us
    await kitchen.wake()
    silent = [await kitchen.caller() for _ in range(30)]
    for number, caller in enumerate(silent):
        expects = b"Expect: 100-continue\r\n" if number % 2 else b""
        caller.send_raw(HEAD + expects + framing + bytes(sent_bytes))
    bodies = kitchen.server.bodies
    await until(lambda: bodies.held_bytes + bodies.spooled_bytes >= 30 * sent_bytes)
    for _ in range(20):
        assert (await kitchen.ask("/echo", method="POST", body=b"quick")).body == b"quick"
    assert {request.body for request in kitchen.backend.requests} == {b"quick"}
    for caller in silent:
        caller.leave()
    await until(lambda: not bodies.held_bytes + bodies.spooled_bytes)


async def test_slow_bodies_by_the_hundred_are_told_so_and_keep_nobody_waiting(
    kitchen: Kitchen,
) -> None:
    """On one slot, the least there is. One in chunks may get it while nobody else wants it, as its
    caller may wait for an answer; it is in nobody's way there."""
    hurried(kitchen, body_s=2, stall_s=0.2)
    await kitchen.serve(queue_limit=5)
    await kitchen.wake()
    slow = [await kitchen.caller() for _ in range(200)]
    for number, caller in enumerate(slow):
        framing = b"Transfer-Encoding: chunked" if number % 2 else b"Content-Length: 9"
        caller.send_raw(HEAD + framing + b"\r\n\r\n" + b"5\r\n")
    await until(lambda: kitchen.backend.requests)
    for _ in range(20):
        assert (await kitchen.ask("/echo", method="POST", body=b"quick")).body == b"quick"
    assert sum(request.body == b"quick" for request in kitchen.backend.requests) == 20
    for caller in slow:
        answer = await caller.answer()
        assert (answer.status, answer.error["code"]) == (408, "request_slow")
    assert kitchen.backend.peak == 1


async def test_a_body_that_comes_slowly_arrives_whole_though_others_never_let_up(
    kitchen: Kitchen,
) -> None:
    hurried(kitchen, stall_s=0.05)
    await kitchen.wake()
    slow = await kitchen.caller()
    slow.send_raw(HEAD + b"Content-Length: 9\r\n\r\n")
    for piece in (b"123", b"456", b"789"):
        slow.send_raw(piece)
        for _ in range(20):
            assert (await kitchen.ask("/next")).status == 200
    assert (await slow.answer()).body == b"123456789"


async def test_a_body_that_is_waited_for_wakes_the_route(kitchen: Kitchen) -> None:
    caller = await kitchen.caller()
    caller.send_raw(HEAD + b"Content-Length: 9\r\n\r\n1234")
    await until(lambda: kitchen.server.demand().queued == 1)
    assert kitchen.server.queue.queued == 0
    caller.leave()
    await until(lambda: kitchen.server.demand().queued == 0)


async def test_bodies_that_are_not_whole_fill_their_room_and_no_more(kitchen: Kitchen) -> None:
    """The one that stands still goes first; where all come, nobody is pushed out for one more of
    the same address."""
    hurried(kitchen, hold_bytes=100_000, spool_bytes=1_000_000, stall_s=0.2)
    still, coming, more = [await kitchen.caller() for _ in range(3)]
    bodies = kitchen.server.bodies
    for caller in (still, coming):
        caller.send_raw(HEAD + b"Content-Length: 900000\r\n\r\n" + bytes(550_000))
    await until(lambda: bodies.spooled_bytes >= 800_000)
    await asyncio.sleep(0.3)
    coming.send_raw(bytes(1))
    await asyncio.sleep(0.05)
    more.send_raw(HEAD + b"Content-Length: 900000\r\n\r\n" + bytes(700_000))
    answer = await still.answer()
    assert (answer.status, answer.error["code"]) == (503, "body_not_kept")
    assert int(answer.headers["retry-after"]) >= 1
    await until(lambda: bodies.spooled_bytes >= 800_000)
    more.send_raw(bytes(200_000))
    coming.send_raw(bytes(349_999))
    answers = []
    await kitchen.wake()
    for caller in (coming, more):
        answers.append((await caller.answer()).status)
    assert 200 in answers
    await until(lambda: not bodies.spooled_bytes)


async def test_a_body_that_finds_no_disk_is_refused(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hurried(kitchen, hold_bytes=100_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    answer = await kitchen.ask("/echo", method="POST", body=bytes(900_000))
    assert (answer.status, answer.error["code"]) == (503, "body_not_kept")
    assert "No such file" in answer.error["message"]


async def test_bodies_that_still_come_hold_half_of_the_slots(kitchen: Kitchen) -> None:
    await kitchen.wake(concurrency=4)
    callers = [await kitchen.caller() for _ in range(6)]
    for caller in callers:
        caller.send_raw(HEAD + b"Content-Length: 9\r\n\r\n12345")
    await until(lambda: len(kitchen.backend.requests) == 2)
    for _ in range(20):
        assert (await kitchen.ask("/next")).status == 200
    assert sum(request.target == "/echo" for request in kitchen.backend.requests) == 2
    for caller in callers:
        caller.send_raw(b"6789")
        assert (await caller.answer()).body == b"123456789"


async def test_one_that_waits_for_its_body_and_leaves_is_forgotten(kitchen: Kitchen) -> None:
    await kitchen.wake(2)
    callers = [await kitchen.caller() for _ in range(3)]
    for number, caller in enumerate(callers):
        caller.send_raw(HEAD + b"Content-Length: 9\r\n\r\n1234%d" % number)
        await until(lambda: kitchen.backend.requests)
    callers[1].leave()
    await until(lambda: len(kitchen.server.callers) == 2)
    callers[0].leave()
    callers[2].send_raw(b"6789")
    assert (await callers[2].answer()).body == b"123426789"
    assert len(kitchen.backend.requests) == 2


async def test_a_body_that_stands_still_in_its_slot_gives_the_slot_back(kitchen: Kitchen) -> None:
    hurried(kitchen, body_s=0.2)
    await kitchen.wake(2)
    caller = await kitchen.caller()
    caller.send_raw(HEAD + b"Content-Length: 1000000\r\n\r\n" + bytes(WHOLE))
    await until(lambda: kitchen.backend.requests)
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (408, "request_slow")
    await until(lambda: kitchen.server.queue.in_flight == 0)
    assert (await kitchen.ask("/next")).status == 200


async def test_a_large_body_that_waits_for_a_slot_is_not_slow(kitchen: Kitchen) -> None:
    hurried(kitchen, body_s=0.2)
    caller = await kitchen.caller()
    body = bytes(1 << 20)
    caller.send("/echo", method="POST", body=body)
    await until(lambda: kitchen.server.queue.queued == 1)
    await asyncio.sleep(0.4)
    await kitchen.wake()
    assert (await caller.answer()).body == body


async def test_an_answer_that_is_not_read_is_cut_and_its_slot_comes_back_with_its_end(
    kitchen: Kitchen,
) -> None:
    hurried(kitchen, take_s=0.2)

    async def flood(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        for _ in range(200):
            connection.chunk(bytes(1 << 16))
            await connection.writer.drain()
        await kitchen.backend.gate.wait()
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/flood", flood)
    await kitchen.wake()
    with deaf(kitchen.route.port, b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"):
        await until(lambda: kitchen.backend.running == 1)
        await until(lambda: not kitchen.server.callers)
        assert kitchen.server.queue.in_flight == 1, "its handler is still running"
        kitchen.backend.gate.set()
        await until(lambda: kitchen.server.queue.in_flight == 0)
    assert (await kitchen.ask("/next")).status == 200


async def test_an_answer_that_is_hardly_read_gives_its_slot_to_those_who_wait(
    kitchen: Kitchen,
) -> None:
    """A caller that takes some bytes now and then is never one that takes nothing."""
    kitchen.limit(take_stall_s=0.3, stall_s=0.2)
    ended = asyncio.Event()

    async def flood(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        with contextlib.suppress(ConnectionError):
            while not connection.reader.at_eof():
                connection.chunk(bytes(1 << 16))
                await connection.writer.drain()
        ended.set()
        connection.writer.close()

    kitchen.backend.on("/flood", flood)
    await kitchen.wake(worker=True)
    loop = asyncio.get_running_loop()
    with deaf(kitchen.route.port, b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n") as sock:
        await until(lambda: kitchen.server.queue.in_flight == 1)

        async def sip() -> None:
            with contextlib.suppress(ConnectionError):
                while await loop.sock_recv(sock, 1):  # noqa: ASYNC110 - it is slow
                    await asyncio.sleep(0.05)

        sipping = asyncio.create_task(sip())
        await asyncio.sleep(1)
        assert kitchen.server.queue.in_flight == 1, "while nobody waits it is in nobody's way"
        assert (await kitchen.ask("/next")).status == 200
        assert ended.is_set()
        sipping.cancel()


async def test_requests_without_end_from_a_caller_that_reads_nothing_are_not_answered_for_ever(
    kitchen: Kitchen,
) -> None:
    hurried(kitchen)
    ask = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n" * 100
    with deaf(kitchen.route.port, ask) as sock:
        loop = asyncio.get_running_loop()
        sent = 0
        with pytest.raises((TimeoutError, ConnectionError)):
            async with asyncio.timeout(1):
                while sent < 200 << 20:
                    await loop.sock_sendall(sock, ask)
                    sent += len(ask)
    answers = kitchen.server.counters.answers[2]
    assert answers * len(ask) / 100 < sent / 2, "most was never answered"
    assert answers < 100_000


async def test_more_requests_ahead_than_anybody_sends_are_refused(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    caller.send_raw(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
    await until(lambda: kitchen.backend.running == 1)
    kitchen.backend.gate.set()
    answered = 0
    while (answer := await caller.answer()).status == 200:
        answered += 1
    assert "requests came ahead of their answers" in answer.error["message"]
    assert await caller.ended()
    assert answered == len(kitchen.backend.requests) <= LIMITS.pipelined_most + 1


async def test_a_connection_too_many_is_told_so_and_other_routes_are_open(
    kitchen: Kitchen,
) -> None:
    kitchen.limit(connections=20)
    held = [await kitchen.caller() for _ in range(20)]
    await until(lambda: len(kitchen.server.callers) == 20)
    refused = await (await kitchen.caller()).answer()
    assert (refused.status, refused.error["code"]) == (503, "too_many_connections")
    assert "20 connections are open" in refused.error["message"]
    held[0].leave()
    await until(lambda: len(kitchen.server.callers) == 19)
    assert (await kitchen.ask("/livez")).status == 200


def test_ten_thousand_callers_of_a_route_leave_files_to_open_for_others() -> None:
    assert 10_100 < shared(LIMITS, 20_000).connections < 15_000
    assert shared(LIMITS, 1_000_000).connections == LIMITS.connections


def deaf(port: int, data: bytes) -> socket.socket:
    """A caller that never reads, with little room for what it does not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(data)
    sock.setblocking(False)
    return sock
