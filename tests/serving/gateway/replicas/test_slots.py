from __future__ import annotations

import asyncio

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port


async def test_callers_that_leave_never_make_a_replica_run_more_than_its_slots(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake(concurrency=2)

    async def brief(request: Request, connection: Connection) -> None:
        await asyncio.sleep(0.01)
        connection.answer()

    kitchen.backend.on("/brief", brief)
    callers = [await kitchen.caller() for _ in range(50)]
    for number, caller in enumerate(callers):
        caller.send("/slow" if number < 2 else "/brief", method="POST", body=b"x")
    await until(lambda: kitchen.server.queue.queued == 48)
    await until(lambda: kitchen.backend.running == 2)
    for caller in callers[:40]:
        caller.leave()
    await until(lambda: kitchen.server.queue.queued == 10)
    assert kitchen.server.queue.in_flight == 2, "their handlers are still running"
    kitchen.backend.gate.set()
    for caller in callers[40:]:
        assert (await caller.answer()).status == 200
    assert kitchen.backend.peak == 2
    assert kitchen.backend.finished == 12, "nothing was run for those who left while queued"


async def test_callers_that_come_and_go_at_random_never_exceed_the_slots(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake(concurrency=3)

    async def work(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        for _ in range(3):
            await asyncio.sleep(0.004)
            connection.chunk(b"piece")
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/work", work)

    async def visit(number: int) -> None:
        caller = await kitchen.send("/work", method="POST", body=b"x" * number)
        if number % 3 == 0:
            await caller.answer()
        else:
            await asyncio.sleep(0.003 * (number % 17))
        caller.leave()

    await asyncio.gather(*(visit(number) for number in range(60)))
    await until(lambda: kitchen.server.queue.idle)
    assert kitchen.backend.peak == 3


async def test_a_slot_comes_back_when_the_stream_of_a_caller_that_left_has_ended(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/stream")
    await caller.head()
    caller.leave()
    other = await kitchen.send("/next")
    await until(lambda: kitchen.server.queue.queued == 1)
    assert kitchen.server.queue.in_flight == 1
    kitchen.backend.gate.set()
    assert (await other.answer()).body == b"ok /next"
    assert kitchen.backend.peak == 1
    assert kitchen.backend.connections == 1, "the drained connection is used again"


async def test_a_worker_that_answers_a_caller_that_left_gets_the_next_request_on_a_new_connection(
    kitchen: Kitchen,
) -> None:
    """Its connection was ended towards it, as notice that the caller has gone."""
    seen: list[Connection] = []

    async def deaf(request: Request, connection: Connection) -> None:
        seen.append(connection)
        await kitchen.backend.gate.wait()
        connection.answer()

    kitchen.backend.on("/deaf", deaf)
    await kitchen.wake(worker=True)
    caller = await kitchen.send("/deaf", method="POST")
    await until(lambda: seen)
    caller.leave()
    other = await kitchen.send("/next", method="POST")
    await until(lambda: seen[0].reader.at_eof() and kitchen.server.queue.queued == 1)
    kitchen.backend.gate.set()
    assert (await other.answer()).status == 200
    assert kitchen.backend.connections == 2


async def test_a_caller_that_leaves_in_the_middle_of_its_body_frees_the_slot_with_the_replica(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake(2)
    caller = await kitchen.caller()
    caller.send_raw(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
    caller.send_raw(bytes(90_000))
    await until(lambda: kitchen.backend.requests)
    caller.leave()
    await until(lambda: kitchen.server.queue.in_flight == 0)
    assert (await kitchen.ask("/next")).status == 200


async def test_a_draining_replica_finishes_what_it_has_and_gets_nothing_new(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake(concurrency=2)
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    await kitchen.serve(replicas=(kitchen.replica(2, draining=True),))
    waiting = await kitchen.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    assert kitchen.gateway.report().routes[kitchen.route.name].busy == {"r1": 1}
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"slow"
    assert kitchen.server.queue.queued == 1
    await kitchen.wake()
    assert (await waiting.answer()).status == 200


async def test_a_replica_that_left_the_table_finishes_what_it_has(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    await kitchen.sleep()
    assert kitchen.gateway.report().routes[kitchen.route.name].busy == {"r1": 1}
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"slow"
    assert kitchen.gateway.report().routes[kitchen.route.name].busy == {}


async def test_requests_spread_over_the_replicas_with_most_free_slots(kitchen: Kitchen) -> None:
    async with Backend() as second:
        await kitchen.serve(replicas=(kitchen.replica(2), ReplicaRoute("r2", second.address, 2)))
        callers = [await kitchen.send("/slow") for _ in range(5)]
        await until(lambda: kitchen.backend.running == second.running == 2)
        assert kitchen.server.queue.queued == 1
        second.gate.set()
        kitchen.backend.gate.set()
        assert [(await caller.answer()).body for caller in callers] == [b"slow"] * 5


async def test_a_refused_connection_puts_the_request_first_in_line_again(
    kitchen: Kitchen,
) -> None:
    dead = ReplicaRoute("dead", f"127.0.0.1:{free_port()}", 5)
    await kitchen.serve(replicas=(dead, kitchen.replica()))
    callers = [await kitchen.caller() for _ in range(4)]
    for number, caller in enumerate(callers):
        caller.send(f"/{number}", method="POST", body=b"x")
    for caller in callers:
        assert (await caller.answer()).status == 200
    assert len(kitchen.backend.requests) == 4


async def test_a_replica_that_refused_is_tried_again_after_a_moment(kitchen: Kitchen) -> None:
    late = Backend()
    await kitchen.serve(replicas=(ReplicaRoute("late", late.address),))
    caller = await kitchen.send("/x")
    await until(lambda: [r for r in kitchen.server.queue.replicas if r.ejection_reason])
    await late.start()
    assert (await caller.answer()).status == 200
    await late.stop()


async def test_a_replica_that_dies_with_a_request_is_answered_for_with_502(
    kitchen: Kitchen,
) -> None:
    async def die(request: Request, connection: Connection) -> None:
        connection.writer.transport.abort()

    kitchen.backend.on("/die", die)
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask("/die", method="POST", body=b"x")
    assert (answer.status, answer.error["code"]) == (502, "replica_failed")
    assert (await caller.ask("/next")).status == 200, "slot and connection are still good"


async def test_a_stream_that_breaks_off_does_not_look_complete(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/half")
    await caller.head()
    assert await caller.chunk() == b"half"
    kitchen.backend.gate.set()
    assert await caller.ended(), "closed without the last chunk"


async def test_an_answer_that_is_not_http_is_a_502(kitchen: Kitchen) -> None:
    async def noise(request: Request, connection: Connection) -> None:
        connection.writer.write(b"+OK ready\r\n")

    kitchen.backend.on("/noise", noise)
    await kitchen.wake()
    assert (await kitchen.ask("/noise")).status == 502


async def test_a_connection_that_the_replica_closed_while_idle_is_not_used(
    kitchen: Kitchen,
) -> None:
    async def last(request: Request, connection: Connection) -> None:
        connection.answer(b"last")
        await connection.writer.drain()
        connection.writer.close()

    kitchen.backend.on("/last", last)
    await kitchen.wake()
    caller = await kitchen.caller()
    for _ in range(10):
        assert (await caller.ask("/last", method="POST", body=b"x")).body == b"last"
    assert kitchen.backend.connections == 10


async def caller_of_flaky(kitchen: Kitchen) -> Caller:
    """A caller of a replica whose connection ends under its second request."""

    async def first_only(request: Request, connection: Connection) -> None:
        if len(kitchen.backend.requests) == 2:
            connection.writer.transport.abort()
        else:
            connection.answer(b"fine")

    kitchen.backend.on("/flaky", first_only)
    await kitchen.wake()
    return await kitchen.caller()


async def test_a_read_is_sent_again_when_a_used_connection_ends_under_it(
    kitchen: Kitchen,
) -> None:
    caller = await caller_of_flaky(kitchen)
    assert [(await caller.ask("/flaky")).body for _ in range(2)] == [b"fine", b"fine"]
    assert len(kitchen.backend.requests) == 3


async def test_a_write_is_never_sent_twice(kitchen: Kitchen) -> None:
    caller = await caller_of_flaky(kitchen)
    statuses = [(await caller.ask("/flaky", method="POST", body=b"x")).status for _ in range(2)]
    assert statuses == [200, 502]
    assert len(kitchen.backend.requests) == 2
