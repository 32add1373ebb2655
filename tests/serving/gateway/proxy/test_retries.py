"""What becomes of a request whose replica goes away, by how far it had come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.proxy.retry import SENDS
from hotplate.serving.replica.inside.patches.handlers import STARTED
from tests.support.gateway.backends import Backend, Connection, Handler, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port

BODY = b"x" * 300_000


@pytest.fixture
async def second() -> AsyncIterator[Backend]:
    """Another replica's server; the first is the kitchen's."""
    async with Backend() as backend:
        yield backend


async def die(request: Request, connection: Connection) -> None:
    connection.writer.transport.abort()


async def start_and_die(request: Request, connection: Connection) -> None:
    connection.writer.write(STARTED)
    await connection.writer.drain()
    connection.writer.close()


async def two(kitchen: Kitchen, second: Backend, first: Handler, *, worker: bool) -> None:
    """Two replicas of one slot; at `/x` the first, whose turn it is, does as it is told."""
    kitchen.backend.on("/x", first)
    second.on("/x", echo_started if worker else echo)
    other = ReplicaRoute("r2", second.address, 1, worker=worker)
    await kitchen.serve(replicas=(kitchen.replica(worker=worker), other))


async def echo(request: Request, connection: Connection) -> None:
    connection.answer(request.body or b"empty")


async def echo_started(request: Request, connection: Connection) -> None:
    connection.writer.write(STARTED)
    connection.answer(request.body or b"empty")


async def test_a_post_that_has_not_begun_goes_to_another_replica_with_its_whole_body(
    kitchen: Kitchen, second: Backend
) -> None:
    await two(kitchen, second, die, worker=True)
    answer = await kitchen.ask("/x", method="POST", body=BODY)
    assert (answer.status, answer.body) == (200, BODY)
    assert [len(b.requests) for b in (kitchen.backend, second)] == [1, 1]
    assert kitchen.server.counters.repeats == 1


async def test_a_post_whose_handler_has_begun_is_a_502_and_runs_once(
    kitchen: Kitchen, second: Backend
) -> None:
    await two(kitchen, second, start_and_die, worker=True)
    answer = await kitchen.ask("/x", method="POST", body=BODY)
    assert (answer.status, answer.error["code"]) == (502, "replica_failed")
    assert "may have run" in answer.error["message"]
    assert kitchen.backend.address in answer.error["message"]
    assert not second.requests


async def test_a_post_to_a_replica_that_does_not_say_when_it_begins_runs_once(
    kitchen: Kitchen, second: Backend
) -> None:
    await two(kitchen, second, die, worker=False)
    assert (await kitchen.ask("/x", method="POST", body=b"x")).status == 502
    assert not second.requests


@pytest.mark.parametrize("worker", [True, False])
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "TRACE", "PUT", "DELETE"])
async def test_what_may_be_repeated_by_its_method_is(
    kitchen: Kitchen, second: Backend, method: str, worker: bool
) -> None:
    await two(kitchen, second, die, worker=worker)
    body = b"whole" if method in ("PUT", "DELETE") else None
    answer = await kitchen.ask("/x", method=method, body=body)
    assert (answer.status, answer.body) == (200, body or b"empty")


async def test_a_service_that_says_so_may_run_twice(kitchen: Kitchen, second: Backend) -> None:
    await kitchen.serve(may_run_twice=True)
    await two(kitchen, second, start_and_die, worker=True)
    answer = await kitchen.ask("/x", method="POST", body=BODY)
    assert (answer.status, answer.body) == (200, BODY)


async def test_a_request_that_ends_every_replica_it_meets_is_sent_three_times(
    kitchen: Kitchen, second: Backend
) -> None:
    await two(kitchen, second, die, worker=True)
    second.on("/x", die)
    answer = await kitchen.ask("/x", method="POST", body=b"x")
    assert answer.status == 502
    assert "3 times" in answer.error["message"]
    seen = [r.target for backend in (kitchen.backend, second) for r in backend.requests]
    assert seen.count("/x") == SENDS


async def test_a_body_that_came_in_parts_is_sent_again_whole_and_the_rest_follows(
    kitchen: Kitchen, second: Backend
) -> None:
    async def read_some(request: Request, connection: Connection) -> None:
        await connection.reader.readexactly(100_000)
        connection.writer.transport.abort()

    await two(kitchen, second, read_some, worker=True)
    kitchen.backend.raw.add("/x")
    caller = await kitchen.caller()
    chunk = b"%x\r\n%b\r\n" % (100_000, b"y" * 100_000)
    caller.send_raw(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
    await until(lambda: kitchen.backend.requests)
    caller.send_raw(chunk)
    await until(lambda: second.requests or second.connections)
    caller.send_raw(chunk + b"0\r\n\r\n")
    assert (await caller.answer()).body == b"y" * 300_000


async def test_a_body_too_large_to_keep_is_not_sent_again(
    kitchen: Kitchen, second: Backend
) -> None:
    kitchen.limit(repeat_bytes=1000)
    await two(kitchen, second, die, worker=True)
    answer = await kitchen.ask("/x", method="POST", body=BODY)
    assert answer.status == 502
    assert "too large to be kept" in answer.error["message"]
    assert not second.requests


async def test_that_a_handler_begins_is_not_passed_on_in_whatever_pieces_it_comes(
    kitchen: Kitchen, second: Backend
) -> None:
    async def in_pieces(request: Request, connection: Connection) -> None:
        for byte in STARTED:
            connection.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        connection.answer(STARTED)  # as content it is the service's

    await two(kitchen, second, in_pieces, worker=True)
    caller = await kitchen.caller()
    for _ in range(4):
        answer = await caller.ask("/x", method="POST", body=STARTED)
        assert (answer.status, answer.body) == (200, STARTED)


async def test_an_answer_that_has_begun_is_cut_and_never_repeated(
    kitchen: Kitchen, second: Backend
) -> None:
    await two(kitchen, second, kitchen.backend.half, worker=True)
    caller = await kitchen.send("/x")
    await caller.head()
    assert await caller.chunk() == b"half"
    kitchen.backend.gate.set()
    assert await caller.ended()
    assert not second.requests


class Abrupt:
    """A server that closes after each answer, without having said so."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = "{}:{}".format(*self.listener.getsockname())
        self.answered = 0

    def serve(self) -> None:
        """Until the listener is shut down."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, contextlib.suppress(ConnectionResetError):
                    request = connection.recv(4096)
                    self.answered += 1
                    body = request.rpartition(b"\r\n\r\n")[2]
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                    # Held until the connection is closed: the answer and its end come at once.
                    connection.sendall(head + body, socket.MSG_MORE)

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


async def test_a_kept_connection_that_the_replica_closed_costs_no_post(kitchen: Kitchen) -> None:
    """Requests sent ahead go into the connection at once, before its end can have been seen."""
    abrupt = Abrupt()
    threading.Thread(target=abrupt.serve, daemon=True).start()
    await kitchen.serve(replicas=(ReplicaRoute("r1", abrupt.address),))
    caller = await kitchen.caller()
    for number in range(30):
        caller.send("/last", method="POST", body=b"%d" % number)
    bodies = [(await caller.answer()).body for _ in range(30)]
    assert bodies == [b"%d" % number for number in range(30)]
    assert abrupt.answered == 30, "none was read twice"
    assert kitchen.server.counters.repeats, "some went into a closed connection"
    assert kitchen.server.queue.ejection_reasons() == {}
    abrupt.stop()


async def test_a_request_waits_while_all_replicas_are_out_and_its_time_is_kept(
    kitchen: Kitchen,
) -> None:
    late = Backend()
    await kitchen.serve(replicas=(ReplicaRoute("late", late.address),), timeout_s=0.3)
    answer = await kitchen.ask("/x", method="POST", body=b"x")
    assert answer.status == 504
    await kitchen.serve(timeout_s=5)
    caller = await kitchen.send("/x", method="POST", body=b"x")
    await until(lambda: kitchen.server.queue.queued == 1)
    assert "takes no connection" in kitchen.server.queue.ejection_reason("late")
    await late.start()
    assert (await caller.answer()).status == 200
    assert kitchen.server.queue.ejection_reasons() == {}
    await late.stop()


async def test_a_worker_that_died_is_out_until_it_says_that_it_is_ready(kitchen: Kitchen) -> None:
    ready = asyncio.Event()

    async def readyz(request: Request, connection: Connection) -> None:
        connection.answer(b"", "200 OK" if ready.is_set() else "503 Service Unavailable")

    kitchen.backend.on("/readyz", readyz)
    kitchen.backend.on("/x", start_and_die)
    await kitchen.serve(replicas=(kitchen.replica(worker=True),))
    caller = await kitchen.caller()
    assert (await caller.ask("/x", method="POST", body=b"x")).status == 502
    caller.send("/next")
    (replica,) = kitchen.server.queue.replicas
    await until(lambda: "503" in replica.ejection_reason)
    assert not [r for r in kitchen.backend.requests if r.target == "/next"]
    ready.set()
    assert (await caller.answer()).status == 200
    assert replica.ejection_reason == ""


async def test_a_slow_replica_is_not_out(kitchen: Kitchen) -> None:
    await kitchen.serve(replicas=(kitchen.replica(2),), timeout_s=0.1)
    assert (await kitchen.ask("/slow")).status == 504
    assert kitchen.server.queue.ejection_reasons() == {}
    assert (await kitchen.ask("/x")).status == 200


async def test_a_worker_is_told_that_a_caller_left_and_its_slot_lasts_until_it_has_ended(
    kitchen: Kitchen,
) -> None:
    left = asyncio.Event()

    async def stream(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        while not connection.reader.at_eof():
            connection.chunk(b"piece")
            await asyncio.sleep(0.01)
        left.set()
        await kitchen.backend.gate.wait()
        connection.writer.close()

    kitchen.backend.on("/stream", stream)
    await kitchen.serve(replicas=(kitchen.replica(worker=True),))
    caller = await kitchen.send("/stream", method="POST", body=b"x")
    await caller.head()
    caller.leave()
    await left.wait()
    assert kitchen.server.queue.in_flight == 1
    kitchen.backend.gate.set()
    await until(lambda: kitchen.server.queue.in_flight == 0)
    assert kitchen.server.queue.ejection_reasons() == {}, "it ended as it was told to"


async def test_a_worker_that_waits_longer_than_its_request_may_is_told_too(
    kitchen: Kitchen,
) -> None:
    async def wait(request: Request, connection: Connection) -> None:
        connection.writer.write(STARTED)
        assert await connection.reader.read() == b""
        connection.writer.close()

    kitchen.backend.on("/wait", wait)
    await kitchen.serve(replicas=(kitchen.replica(worker=True),), timeout_s=0.1)
    assert (await kitchen.ask("/wait", method="POST", body=b"x")).status == 504
    await until(lambda: kitchen.server.queue.in_flight == 0)


async def test_another_replica_at_the_address_is_not_out_for_the_one_before(
    kitchen: Kitchen, second: Backend
) -> None:
    dead = ReplicaRoute("r1", f"127.0.0.1:{free_port()}")
    await kitchen.serve(replicas=(dead,))
    caller = await kitchen.send("/x")
    await until(lambda: [r for r in kitchen.server.queue.replicas if r.ejection_reason])
    await kitchen.serve(replicas=(replace(dead, address=second.address),))
    assert (await caller.answer()).status == 200
