from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def test_requests_are_held_until_a_replica_appears(kitchen: Kitchen) -> None:
    callers = [await kitchen.caller() for _ in range(5)]
    for number, caller in enumerate(callers):
        caller.send("/echo", method="POST", body=str(number).encode())
        await until(partial(_queued, kitchen, number + 1))
    await kitchen.wake()
    bodies = [(await caller.answer()).body for caller in callers]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert [r.body for r in kitchen.backend.requests] == bodies, "first come, first served"


async def test_a_request_that_no_replica_came_for_is_a_503_with_retry_after(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(hold_limit_s=0.1)
    caller = await kitchen.caller()
    answer = await caller.ask("/x", method="POST", body=b"x")
    assert (answer.status, answer.error["code"]) == (503, "not_ready")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await caller.ask("/livez")).status == 200, "the connection goes on"


async def test_a_caller_is_told_what_is_waited_for(kitchen: Kitchen) -> None:
    await kitchen.serve(hold_limit_s=0.1)
    caller = await kitchen.send("/x", method="POST")
    await until(partial(_queued, kitchen, 1))
    await kitchen.serve(hold_limit_s=0.1, waits_for='1 of 2: "64 GPUs"\nare not there')
    said = (await caller.answer()).error["message"]
    assert said.endswith(
        'no replica became ready in 0.1 s (1 of 2: "64 GPUs"\nare not there); try again.'
    )


async def test_a_full_queue_says_that_nothing_is_ready_and_why(kitchen: Kitchen) -> None:
    await kitchen.serve(queue_limit=1, waits_for="waking: 1 replica starting")
    first, second = await kitchen.caller(), await kitchen.caller()
    first.send("/x", method="POST")
    await until(partial(_queued, kitchen, 1))
    answer = await second.ask("/x", method="POST")
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    assert answer.error["message"].endswith(
        "wait (queue_limit=1); no replica is ready (waking: 1 replica starting); come back later."
    )


async def test_readyz_wakes_and_is_held_until_a_replica_is_ready(kitchen: Kitchen) -> None:
    caller = await kitchen.send("/readyz")
    await until(lambda: kitchen.gateway.report().routes[kitchen.route.name].demand == 1)
    await kitchen.wake()
    assert (await caller.answer()).body == b"ok /readyz"


async def test_readyz_is_held_for_a_bounded_time(kitchen: Kitchen) -> None:
    began = asyncio.get_running_loop().time()
    answer = await kitchen.ask("/readyz")
    assert (answer.status, answer.error["code"]) == (503, "not_ready")
    waited = asyncio.get_running_loop().time() - began
    assert waited == pytest.approx(kitchen.gateway.limits.ready_hold_s, abs=0.3)


@pytest.mark.parametrize(
    "target", ["/readyz", "/metrics", "/schema.json", "/v1/readyz", "/v1/metrics"]
)
async def test_what_is_no_call_does_not_wait_behind_busy_slots(
    kitchen: Kitchen, target: str
) -> None:
    ready_path = "/v1/readyz" if target.startswith("/v1") else "/readyz"
    await kitchen.serve(schema='{"of": "the manifest"}', ready_path=ready_path)
    await kitchen.wake()
    busy = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    assert (await kitchen.ask(target)).body == f"ok {target}".encode()
    assert kitchen.server.queue.in_flight == 1
    kitchen.backend.gate.set()
    assert (await busy.answer()).body == b"slow"


@pytest.mark.parametrize("target", ["/readyz", "/metrics?a=b"])
async def test_what_has_a_prefix_in_the_replica_is_found_without_it(
    kitchen: Kitchen, target: str
) -> None:
    await kitchen.serve(ready_path="/v1/readyz")
    await kitchen.wake()
    for _ in range(3):  # from the second on the head is known
        assert (await kitchen.ask(target)).body == f"ok /v1{target}".encode()


@pytest.mark.parametrize("target", ["/livez", "/healthz"])
async def test_the_gateway_answers_for_itself_that_it_is_alive(
    kitchen: Kitchen, target: str
) -> None:
    await kitchen.serve(token_digests=())
    assert (await kitchen.ask(target)).status == 200
    assert kitchen.server.queue.queued == 0


async def test_the_schema_of_a_sleeping_route_is_answered_without_waking_it(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(schema='{"routes": []}')
    answer = await kitchen.ask("/schema.json")
    assert (answer.body, answer.headers["content-type"]) == (b'{"routes": []}', "application/json")
    assert kitchen.server.queue.queued == 0


async def test_reading_metrics_wakes_nothing(kitchen: Kitchen) -> None:
    assert (await kitchen.ask("/metrics")).status == 503
    assert kitchen.server.queue.queued == 0


async def test_a_time_limit_in_the_queue_is_a_504(kitchen: Kitchen) -> None:
    await kitchen.serve(timeout_s=0.1)
    await kitchen.wake()
    running, waiting = await kitchen.caller(), await kitchen.caller()
    running.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    answer = await waiting.ask("/x")
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")


async def test_the_time_limit_starts_when_a_replica_is_ready(kitchen: Kitchen) -> None:
    await kitchen.serve(timeout_s=0.15)
    caller = await kitchen.send("/x")
    await asyncio.sleep(0.3)
    await kitchen.wake()
    assert (await caller.answer()).status == 200


async def test_a_time_limit_while_running_is_a_504_and_the_slot_stays_taken(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(timeout_s=0.15)
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask("/slow", method="POST", body=b"x")
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert (kitchen.server.queue.in_flight, kitchen.backend.running) == (1, 1)
    await kitchen.serve(timeout_s=5.0)
    caller.send("/next")
    await until(lambda: kitchen.server.queue.queued == 1)
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"ok /next"
    assert kitchen.backend.peak == 1


async def test_an_answer_that_has_begun_may_last_longer_than_the_time_limit(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(timeout_s=0.15)
    await kitchen.wake()
    caller = await kitchen.send("/stream")
    await caller.head()
    assert await caller.chunk() == b"piece"
    await asyncio.sleep(0.3)
    kitchen.backend.gate.set()
    assert await caller.chunk() == b"rest"
    await until(lambda: kitchen.server.queue.in_flight == 0)


async def test_a_tunnel_outlives_the_time_limit(kitchen: Kitchen) -> None:
    async def parrot(request: Request, connection: Connection) -> None:
        connection.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        while data := await connection.reader.read(1 << 16):
            connection.writer.write(data)
        connection.writer.close()

    kitchen.backend.on("/ws", parrot)
    await kitchen.serve(timeout_s=0.1)
    await kitchen.wake()
    caller = await kitchen.send("/ws", connection="Upgrade", upgrade="websocket")
    await caller.head()
    await asyncio.sleep(0.25)
    caller.send_raw(b"still here")
    assert await caller.reader.readexactly(10) == b"still here"


def _queued(kitchen: Kitchen, number: int) -> bool:
    return kitchen.server.queue.queued == number
