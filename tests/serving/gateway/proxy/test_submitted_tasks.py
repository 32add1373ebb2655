"""Answers that are whole for the caller before their handler has ended: submitted tasks."""

from __future__ import annotations

import asyncio

import pytest

from hotplate.serving.gateway.protocol.headers import ANSWER_BYTES
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

TASK = b'{"task_id": "1"}'
PROMISE = f"{ANSWER_BYTES.decode()}: {len(TASK)}\r\n"


@pytest.fixture
async def ended(kitchen: Kitchen) -> asyncio.Event:
    """Ends the task that `POST /job/submit` has begun; its replica has one slot."""
    event = asyncio.Event()

    async def submit(request: Request, connection: Connection) -> None:
        connection.begin_chunks(PROMISE)
        connection.chunk(TASK)
        await event.wait()
        connection.chunk(b"")

    kitchen.backend.on("/job/submit", submit)
    await kitchen.serve(tasks=("/job",))
    await kitchen.wake(worker=True)
    return event


async def test_a_submitted_task_is_answered_at_once_and_keeps_its_slot_until_it_has_ended(
    kitchen: Kitchen, ended: asyncio.Event
) -> None:
    caller = await kitchen.caller()
    answer = await caller.ask("/job/submit", method="POST", body=b"{}")
    assert (answer.status, answer.body) == (200, TASK)
    assert ANSWER_BYTES.decode() not in answer.headers
    assert "transfer-encoding" not in answer.headers
    assert kitchen.server.demand().in_flight == 1

    caller.send("/echo", method="POST", body=b"next")  # on the same connection
    await until(lambda: kitchen.server.demand().queued == 1)
    assert kitchen.backend.running == 1
    ended.set()
    assert (await caller.answer()).body == b"next"
    assert kitchen.backend.peak == 1
    await until(lambda: kitchen.server.demand().in_flight == 0)


async def test_a_task_is_asked_after_while_it_has_the_only_slot(
    kitchen: Kitchen, ended: asyncio.Event
) -> None:
    caller = await kitchen.caller()
    await caller.ask("/job/submit", method="POST", body=b"{}")
    for method, what in (("GET", "status"), ("GET", "get"), ("PUT", "cancel")):
        answer = await caller.ask(f"/job/{what}?task_id=1", method=method)
        assert answer.status == 200
    assert kitchen.server.demand().in_flight == 1
    caller.send("/other/status")  # no task's
    await until(lambda: kitchen.server.demand().queued == 1)
    ended.set()
    assert (await caller.answer()).status == 200


async def test_a_replica_that_dies_under_a_task_gives_the_slot_back(
    kitchen: Kitchen, ended: asyncio.Event
) -> None:
    caller = await kitchen.caller()
    await caller.ask("/job/submit", method="POST", body=b"{}")
    await kitchen.backend.stop()
    await until(lambda: kitchen.server.demand().in_flight == 0)
