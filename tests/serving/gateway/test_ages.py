"""Since when the request that has its slot for longest has it, as the gateway reports it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from hotplate.serving.gateway.protocol.routes import DemandReport, ReplicaRoute, RouteDemand
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


@pytest.fixture
async def second() -> AsyncIterator[Backend]:
    async with Backend() as backend:
        yield backend


def now() -> float:
    return asyncio.get_running_loop().time()


def oldest_at(kitchen: Kitchen) -> float:
    at = kitchen.server.demand().oldest_at
    assert at is not None
    return at


async def test_it_is_the_first_of_those_that_run_and_not_of_those_that_wait(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    assert kitchen.server.demand().oldest_at is None
    before = now()
    first = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    began_at = oldest_at(kitchen)
    assert before <= began_at <= now()
    waits = await kitchen.send("/slow")
    await until(lambda: kitchen.server.demand().queued == 1)
    assert oldest_at(kitchen) == began_at
    kitchen.backend.gate.set()
    assert (await first.answer()).status == (await waits.answer()).status == 200
    await until(lambda: kitchen.server.demand().oldest_at is None)


async def test_a_slot_that_goes_on_to_the_next_request_begins_anew(kitchen: Kitchen) -> None:
    ends = asyncio.Event()

    async def wait(request: Request, connection: Connection) -> None:
        await ends.wait()
        connection.answer()

    kitchen.backend.on("/first", wait)
    await kitchen.wake()
    first = await kitchen.send("/first")
    await until(lambda: kitchen.backend.running == 1)
    began_at = oldest_at(kitchen)
    await kitchen.send("/slow")
    await until(lambda: kitchen.server.demand().queued == 1)
    await asyncio.sleep(0.02)  # a loop's clock has milliseconds
    ends.set()
    assert (await first.answer()).status == 200
    await until(lambda: kitchen.server.demand().completed == 1)
    assert began_at < oldest_at(kitchen) <= now()


async def test_a_stream_is_as_old_as_its_request(kitchen: Kitchen) -> None:
    await kitchen.wake(2)
    caller = await kitchen.send("/stream")
    await until(lambda: kitchen.backend.running == 1)
    began_at = oldest_at(kitchen)
    await caller.head()
    await caller.chunk()
    await kitchen.ask("/echo", method="POST", body=b"beside it")
    assert oldest_at(kitchen) == began_at, "its response has begun and goes on"
    kitchen.backend.gate.set()
    await until(lambda: kitchen.server.demand().oldest_at is None)


async def test_a_request_that_is_sent_again_is_as_old_as_its_new_slot(
    kitchen: Kitchen, second: Backend
) -> None:
    died_at = 0.0

    async def die(request: Request, connection: Connection) -> None:
        nonlocal died_at
        await kitchen.backend.gate.wait()
        died_at = now()
        connection.writer.transport.abort()

    kitchen.backend.on("/slow", die)
    await kitchen.serve(
        replicas=(kitchen.replica(), ReplicaRoute("r2", second.address, 1)), may_run_twice=True
    )
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    assert oldest_at(kitchen) <= now()
    await asyncio.sleep(0.02)  # a loop's clock has milliseconds
    kitchen.backend.gate.set()
    await until(lambda: second.running == 1)
    assert oldest_at(kitchen) >= died_at - 0.002
    second.gate.set()
    assert (await caller.answer()).status == 200


async def test_a_request_whose_caller_has_gone_gets_older_until_its_handler_ends(
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
    await kitchen.wake(worker=True)
    caller = await kitchen.send("/stream", method="POST", body=b"x")
    await caller.head()
    began_at = oldest_at(kitchen)
    caller.leave()
    await left.wait()
    assert oldest_at(kitchen) == began_at
    kitchen.backend.gate.set()
    await until(lambda: kitchen.server.demand().oldest_at is None)


@pytest.mark.parametrize("oldest_at", [None, 100.0])
def test_an_age_is_sent_and_a_moment_kept(oldest_at: float | None) -> None:
    report = DemandReport(7, {"acme/echo": RouteDemand(in_flight=1, oldest_at=oldest_at)})
    sent = json.loads(json.dumps(report.to_json(130.0)))
    demand = sent["routes"]["acme/echo"]
    assert demand["oldest_s"] == (None if oldest_at is None else 30.0)
    assert "oldest_at" not in demand
    came = DemandReport.from_json(sent, 1000.0).routes["acme/echo"]
    assert came.oldest_at == (None if oldest_at is None else 970.0)


def test_an_older_gateway_says_no_age() -> None:
    said = {"version": 7, "routes": {"acme/echo": {"in_flight": 1, "queued": 2}}}
    assert DemandReport.from_json(said, 50.0).routes["acme/echo"].oldest_at is None


def test_time_alone_makes_no_other_report() -> None:
    first, later = (RouteDemand(in_flight=1, oldest_at=at) for at in (100.0, 100.004))
    assert first == later
