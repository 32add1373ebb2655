"""What a gateway says of a route's counts: each request once, and how long replicas were busy."""

from __future__ import annotations

import asyncio
import json

import pytest

from hotplate.serving.gateway.protocol.route_counts import BOUNDS_S, RouteCounts
from hotplate.serving.gateway.protocol.routes import DemandReport, ReplicaRoute
from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

VERSION = "main@7"


async def served(kitchen: Kitchen, **changes: object) -> None:
    replica = ReplicaRoute("r1", kitchen.backend.address, 4, version=VERSION)
    await kitchen.serve(replicas=(replica,), **changes)


async def counted(kitchen: Kitchen) -> RouteCounts:
    """What the route says, once nothing runs."""
    await until(lambda: kitchen.server.queue.idle)
    kitchen.gateway.report()
    taken = kitchen.gateway.take_counts(asyncio.get_running_loop().time())
    return taken.get(kitchen.route.name, RouteCounts())


def requests(buckets: tuple[tuple[int, int], ...]) -> int:
    return sum(count for _, count in buckets)


async def test_each_request_is_said_once(kitchen: Kitchen) -> None:
    async def fail(request: Request, connection: Connection) -> None:
        connection.answer(b"", "500 Oh")

    kitchen.backend.on("/bad", fail)
    await served(kitchen)
    assert await counted(kitchen) == RouteCounts()
    for path in ("/x", "/bad", "/x"):
        await kitchen.ask(path)
    first = await counted(kitchen)
    assert (first.answered, first.failed, first.refusals) == (3, 1, {})
    for buckets in (first.waits, first.first_bytes, first.answers):
        assert requests(buckets) == 3
        assert all(0 <= bucket <= len(BOUNDS_S) for bucket, _ in buckets)
    assert set(first.busy_s) <= {"r1"}
    assert await counted(kitchen) == RouteCounts(), "nothing came since"
    await served(kitchen, refuse="it has failed")
    await kitchen.ask("/x")
    second = await counted(kitchen)
    assert (second.answered, second.refusals) == (0, {"route_refused": 1})


async def test_an_answer_that_breaks_is_counted_as_its_error_only(kitchen: Kitchen) -> None:
    await served(kitchen)
    caller = await kitchen.send("/half")
    assert (await caller.head())[0] == 200
    kitchen.backend.gate.set()
    said = await counted(kitchen)
    assert (said.answered, said.failed, said.refusals) == (0, 0, {"replica_failed": 1})


async def test_a_replica_is_busy_while_any_of_its_slots_is_taken(kitchen: Kitchen) -> None:
    await served(kitchen)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    callers = [await kitchen.send("/slow") for _ in range(2)]
    await until(lambda: kitchen.backend.running == 2)
    await until(lambda: loop.time() > begun)
    running_s = kitchen.gateway.take_counts(loop.time())[kitchen.route.name].busy_s["r1"]
    kitchen.backend.gate.set()
    for caller in callers:
        await caller.answer()
    ended_s = (await counted(kitchen)).busy_s.get("r1", 0.0)
    assert 0 < running_s + ended_s <= loop.time() - begun, "two slots at once count once"
    assert (await counted(kitchen)).busy_s == {}


@pytest.mark.parametrize(
    "counts",
    [
        RouteCounts(),
        RouteCounts(3, 1, {"share_full": 2}, ((0, 3),), ((4, 3),), ((12, 3),), {"r1": 0.25}),
    ],
)
def test_counts_come_as_they_were_sent(counts: RouteCounts) -> None:
    sent = json.loads(json.dumps(DemandReport(7, {}, (), {"acme/echo": counts}).to_json(1.0)))
    assert DemandReport.from_json(sent, 1.0).counted == {"acme/echo": counts}
    del sent["counted"]  # as an older gateway says it
    assert DemandReport.from_json(sent, 1.0).counted == {}
