from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from hotplate.serving.gateway.protocol.routes import Route, RouteTable
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port


async def test_a_removed_route_refuses_what_waits_and_finishes_what_runs(kitchen: Kitchen) -> None:
    await kitchen.wake()
    running, waiting, idle = [await kitchen.caller() for _ in range(3)]
    assert (await idle.ask("/x")).status == 200
    running.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    waiting.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    await kitchen.gateway.apply(RouteTable(9))
    answer = await waiting.answer()
    assert (answer.status, answer.error["code"]) == (503, "route_closed")
    assert await idle.ended()
    with pytest.raises(OSError):
        await kitchen.caller(kitchen.route.port)
    assert kitchen.gateway.report().routes[kitchen.route.name].busy == {"r1": 1}
    kitchen.backend.gate.set()
    answer = await running.answer()
    assert (answer.body, answer.headers["connection"]) == (b"slow", "close")
    await until(lambda: not kitchen.gateway.report().routes)


async def test_a_route_that_comes_back_still_knows_its_slots(kitchen: Kitchen) -> None:
    await kitchen.wake()
    running = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    await kitchen.gateway.apply(RouteTable(9))
    await kitchen.serve()
    caller = await kitchen.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    assert kitchen.server.queue.in_flight == 1
    kitchen.backend.gate.set()
    assert (await running.answer()).body == b"slow"
    assert (await caller.answer()).status == 200
    assert kitchen.backend.peak == 1


async def test_a_taken_port_is_reported_and_tried_again_with_the_next_table(
    kitchen: Kitchen,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = Route("acme/other", "127.0.0.1", port)
        await kitchen.gateway.apply(RouteTable(5, (other, kitchen.route)))
        routes = kitchen.gateway.report().routes
        assert str(port) in routes["acme/other"].error
        assert routes[kitchen.route.name].error == ""
        assert (await kitchen.ask("/livez")).status == 200
    await kitchen.gateway.apply(RouteTable(6, (other, kitchen.route)))
    assert kitchen.gateway.report().routes["acme/other"].error == ""
    assert (await (await kitchen.caller(port)).ask("/livez")).status == 200


async def test_routes_may_exchange_their_ports(kitchen: Kitchen) -> None:
    other = Route("acme/other", "127.0.0.1", free_port(), schema='{"of": "other"}')
    await kitchen.gateway.apply(RouteTable(5, (kitchen.route, other)))
    mine, theirs = kitchen.route.port, other.port
    swapped = (replace(kitchen.route, port=theirs), replace(other, port=mine))
    await kitchen.gateway.apply(RouteTable(6, swapped))
    assert [d.error for d in kitchen.gateway.report().routes.values()] == ["", ""]
    assert (await (await kitchen.caller(mine)).ask("/schema.json")).body == b'{"of": "other"}'


async def test_a_moved_route_keeps_its_callers_and_its_queue(kitchen: Kitchen) -> None:
    caller = await kitchen.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    old = kitchen.route.port
    await kitchen.serve(port=free_port())
    with pytest.raises(OSError):
        await kitchen.caller(old)
    await kitchen.wake()
    assert (await caller.answer()).status == 200
    assert (await kitchen.ask("/y")).status == 200


async def test_a_new_table_disturbs_nothing_that_runs(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    for limit in range(3):
        await kitchen.serve(queue_limit=100 + limit)
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"slow"
    assert (await caller.ask("/x")).status == 200


async def test_a_gateway_that_stops_finishes_what_runs_within_its_grace(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    closing = asyncio.create_task(kitchen.gateway.close(5))
    await until(lambda: kitchen.server.closing)
    await kitchen.gateway.apply(RouteTable(99, (kitchen.route,)))
    assert kitchen.server.closing, "a table does not revive it"
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"slow"
    await closing


async def test_a_gateway_that_stops_cuts_what_outlasts_its_grace(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    await until(lambda: kitchen.backend.running == 1)
    await kitchen.gateway.close(0.1)
    assert await caller.ended()


async def test_demand_is_counted_with_service_time_and_busy_slots(kitchen: Kitchen) -> None:
    await kitchen.wake(concurrency=2)
    callers = [await kitchen.caller() for _ in range(3)]
    began = asyncio.get_running_loop().time()
    for caller in callers:
        caller.send("/slow")
    await until(lambda: kitchen.server.queue.queued == 1)
    await asyncio.sleep(0.05)
    demand = kitchen.gateway.report().routes[kitchen.route.name]
    assert (demand.in_flight, demand.queued, demand.busy) == (2, 1, {"r1": 2})
    kitchen.backend.gate.set()
    for caller in callers:
        await caller.answer()
    demand = kitchen.gateway.report().routes[kitchen.route.name]
    assert (demand.in_flight, demand.queued, demand.completed) == (0, 0, 3)
    assert 0.02 < demand.service_s < asyncio.get_running_loop().time() - began


async def test_what_was_made_of_a_head_holds_for_its_route_only(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    statuses = []
    closed, failed = {"token_digests": ("0" * 64,)}, {"refuse": "it has failed"}
    for changes in ({}, closed, {"token_digests": None}, failed, {"refuse": ""}):
        await kitchen.serve(**changes)
        for _ in range(2):
            statuses.append((await caller.ask("/x", method="POST", body=b"same")).status)
    assert statuses == [200, 200, 401, 401, 200, 200, 503, 503, 200, 200]
