"""Answers of each version: which are counted, as what, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from hotplate.serving.gateway.protocol.routes import ANSWER_KINDS, ReplicaRoute
from hotplate.serving.gateway.telemetry.version_answers import (
    KEPT,
    NO_KIND,
    VersionAnswers,
    kind_of,
)
from tests.support.gateway.backends import SWITCH, Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

VERSION = "main@7"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(101, NO_KIND), (200, 0), (299, 0), (300, 1), (404, 2), (500, 3), (599, 3), (999, 3)],
)
def test_a_status_has_the_kind_of_its_first_digit(status: int, kind: int) -> None:
    assert kind_of(status) == kind


def test_what_is_in_the_table_stays_and_what_is_much_older_goes() -> None:
    answers = VersionAnswers()
    for number in range(KEPT + 3):
        counts = answers.of(f"main@{number}")
        assert counts is not None
        counts[0] += 1
    answers.keep({"main@0", "main@99"})
    found = answers.by_kind(ANSWER_KINDS)
    assert list(found) == [*(f"main@{number}" for number in range(3, KEPT + 3)), "main@0"]
    assert found["main@0"] == {"2xx": 1}
    assert answers.of("") is None


async def counted(kitchen: Kitchen) -> Mapping[str, int]:
    """What the route says of the version, as soon as nothing runs."""
    await until(lambda: kitchen.server.queue.idle)
    return kitchen.gateway.report().routes[kitchen.route.name].answers.get(VERSION, {})


async def versioned(kitchen: Kitchen, *, worker: bool = False, **changes: object) -> None:
    replica = ReplicaRoute("r1", kitchen.backend.address, 4, worker=worker, version=VERSION)
    await kitchen.serve(replicas=(replica,), **changes)


async def test_each_answer_counts_by_its_status(kitchen: Kitchen) -> None:
    statuses = {
        "/a": "204 None",
        "/b": "302 Found",
        "/c": "404 Lost",
        "/d": "500 Oh",
        "/e": "503 No",
    }

    async def answer(request: Request, connection: Connection) -> None:
        connection.answer(b"", statuses[request.target])

    for path in statuses:
        kitchen.backend.on(path, answer)
    await versioned(kitchen)
    for path in statuses:
        await kitchen.ask(path)
        await kitchen.ask(path)
    assert await counted(kitchen) == {"2xx": 2, "3xx": 2, "4xx": 2, "5xx": 4}


async def test_what_the_gateway_says_itself_and_what_asks_a_replica_for_itself_do_not_count(
    kitchen: Kitchen,
) -> None:
    await versioned(kitchen, refuse="it has failed")
    assert (await kitchen.ask("/x")).status == 503
    await versioned(kitchen, refuse="")
    assert (await kitchen.ask("/livez")).status == 200
    assert (await kitchen.ask("/readyz")).status == 200
    assert await counted(kitchen) == {}


async def test_a_stream_counts_when_it_has_ended_and_is_broken_if_its_replica_breaks_it(
    kitchen: Kitchen,
) -> None:
    await versioned(kitchen)
    callers = [await kitchen.send(path) for path in ("/half", "/stream")]
    for caller in callers:
        assert (await caller.head())[0] == 200
    assert kitchen.server.demand().answers == {}
    kitchen.backend.gate.set()
    assert await counted(kitchen) == {"2xx": 1, "broken": 1}


async def test_a_caller_that_leaves_is_not_its_replicas_fault(kitchen: Kitchen) -> None:
    await versioned(kitchen)
    for path in ("/slow", "/half"):
        caller = await kitchen.send(path)
        await until(lambda: kitchen.backend.running == 1)
        if path == "/half":
            assert (await caller.head())[0] == 200
        caller.leave(reset=True)
        await until(lambda: not len(kitchen.server.callers))
        kitchen.backend.gate.set()
        assert "broken" not in await counted(kitchen)
        kitchen.backend.gate.clear()


async def test_a_replica_that_takes_its_time_or_answers_nonsense_has_not_answered(
    kitchen: Kitchen,
) -> None:
    async def nonsense(request: Request, connection: Connection) -> None:
        connection.writer.write(b"what?\r\n\r\n")

    kitchen.backend.on("/nonsense", nonsense)
    await versioned(kitchen, timeout_s=0.2)
    assert (await kitchen.ask("/slow")).status == 504
    kitchen.backend.gate.set()
    assert await counted(kitchen) == {"broken": 1}
    assert (await kitchen.ask("/nonsense")).status == 502
    assert await counted(kitchen) == {"broken": 2}


async def test_each_try_at_a_replica_that_dies_of_it_counts(kitchen: Kitchen) -> None:
    tries = 0

    async def dies_once(request: Request, connection: Connection) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            connection.writer.transport.abort()
        else:
            connection.answer(b"alive")

    kitchen.backend.on("/dies", dies_once)
    await versioned(kitchen)
    assert (await kitchen.ask("/dies")).body == b"alive"
    assert await counted(kitchen) == {"2xx": 1, "broken": 1}


async def test_a_websocket_is_no_answer(kitchen: Kitchen) -> None:
    async def switch(request: Request, connection: Connection) -> None:
        connection.writer.write(SWITCH)
        await connection.reader.read()
        connection.writer.close()

    kitchen.backend.on("/ws", switch, raw=True)
    await versioned(kitchen)
    caller = await kitchen.caller()
    caller.send("/ws", Connection="Upgrade", Upgrade="websocket")
    assert (await caller.head())[0] == 101
    caller.leave()
    assert await counted(kitchen) == {}


async def test_counts_stay_while_replicas_come_and_go(kitchen: Kitchen) -> None:
    await versioned(kitchen)
    assert (await kitchen.ask("/x")).status == 200
    await kitchen.sleep()
    assert await counted(kitchen) == {"2xx": 1}
    await versioned(kitchen)
    assert (await kitchen.ask("/x")).status == 200
    assert await counted(kitchen) == {"2xx": 2}


async def test_two_revisions_in_one_route_count_apart(kitchen: Kitchen) -> None:
    old = ReplicaRoute("r1", kitchen.backend.address, 1, version="main@7")
    await kitchen.serve(replicas=(old, ReplicaRoute("r2", old.address, 1, version="main@8")))
    callers = [await kitchen.send("/slow") for _ in range(2)]
    await until(lambda: kitchen.backend.running == 2)
    kitchen.backend.gate.set()
    await asyncio.gather(*(caller.answer() for caller in callers))
    await until(lambda: kitchen.server.queue.idle)
    answers = kitchen.gateway.report().routes[kitchen.route.name].answers
    assert answers == {"main@7": {"2xx": 1}, "main@8": {"2xx": 1}}
