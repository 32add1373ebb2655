"""A deployment with a canary: which version answers, and what becomes of requests meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import pytest

from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import RouteTable, RouteType
from hotplate.serving.gateway.protocol.version_shares import MAIN
from tests.support.gateway.backends import SWITCH, Connection, Request
from tests.support.gateway.canary import SLOTS, Canary
from tests.support.gateway.kitchen import Kitchen
from tests.support.gateway.load import Load
from tests.support.patience import until

VERSION = "hotplate-version"
WEIGHTS: Sequence[Mapping[str, float]] = ({"next": 40}, {"next": 10, "other": 20}, {})


@pytest.fixture
async def canary(kitchen: Kitchen) -> AsyncIterator[Canary]:
    canary = Canary(kitchen)
    await canary.add("next", "other")
    yield canary
    await canary.close()


async def test_each_version_answers_its_share_and_says_so(canary: Canary, kitchen: Kitchen) -> None:
    await canary.serve({"next": 10, "other": 20})
    caller = await kitchen.caller()
    told = Counter([(await caller.ask("/x")).headers[VERSION] for _ in range(200)])
    assert told == canary.asked
    assert abs(told["next"] - 20) <= 2 and abs(told["other"] - 40) <= 2
    routes = kitchen.gateway.report().routes
    for version, server in (("next", canary.server("next")), (MAIN, kitchen.server)):
        assert routes[server.route.name].answers == {f"{version}@1": {"2xx": told[version]}}


async def test_a_request_names_its_version_and_the_replica_sees_it(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 0, "other": 100})
    for version in ("next", MAIN, "other", "next"):
        answer = await kitchen.ask("/x", Hotplate_Version=version)
        assert (answer.status, answer.headers[VERSION]) == (200, version)
        assert canary.backends[version].requests[-1].headers[VERSION] == version
    assert canary.asked == {"next": 2, MAIN: 1, "other": 1}
    answer = await kitchen.ask("/x", Hotplate_Version="nxt")
    assert (answer.status, answer.error["code"]) == (400, "unknown_version")
    assert "one of main, next, other" in answer.error["message"]


async def test_without_a_canary_nothing_is_chosen_and_nothing_is_said(kitchen: Kitchen) -> None:
    await kitchen.wake()
    answer = await kitchen.ask("/x", Hotplate_Version="next")
    assert answer.status == 200
    assert VERSION not in answer.headers
    assert kitchen.backend.requests[-1].headers[VERSION] == "next"


async def test_a_replicas_own_field_never_gets_through(canary: Canary, kitchen: Kitchen) -> None:
    async def lies(request: Request, connection: Connection) -> None:
        connection.answer(b"me", extra="HOTPLATE-version: mine\r\n")

    kitchen.backend.on("/lies", lies)
    for weights in ({}, {"next": 0}, {}):
        await canary.serve(weights)
        caller = await kitchen.caller()
        for _ in range(2):  # the second one has a known head
            caller.send("/lies")
            text = (await caller.reader.readuntil(b"\r\n\r\n")).lower()
            assert await caller.reader.readexactly(2) == b"me"
            assert text.count(b"hotplate-version: main") == text.count(VERSION.encode())
            assert text.count(VERSION.encode()) == bool(weights)


async def test_values_keep_their_version_when_a_weight_grows(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 10}, route_type=RouteType.HEADER, route_by="X-User")
    caller = await kitchen.caller()
    users = [f"user-{number}" for number in range(300)]

    async def versions() -> list[str]:
        return [(await caller.ask("/x", X_User=user)).headers[VERSION] for user in users]

    before = await versions()
    assert await versions() == before
    await canary.serve({"next": 20})
    after = await versions()
    assert after.count("next") > before.count("next") > 10
    assert {new for old, new in zip(before, after, strict=True) if old == "next"} == {"next"}
    assert (await caller.ask("/x")).headers[VERSION] == MAIN


async def test_the_public_routes_admission_holds_for_every_version(
    canary: Canary, kitchen: Kitchen
) -> None:
    token = "secret-token"
    cors = Cors(allow_origins=("http://page.test",))
    await canary.serve(
        {"next": 100},
        token_digests=(hashlib.sha256(token.encode()).hexdigest(),),
        cors=cors,
        body_limit_bytes=4,
    )
    answer = await kitchen.ask("/x")
    assert (answer.status, answer.headers[VERSION]) == (401, "next")
    unknown = await kitchen.ask("/x", Hotplate_Version="nxt")
    assert unknown.status == 401, "a stranger learns nothing of the versions"
    bearer = {"Authorization": f"Bearer {token}"}
    answer = await kitchen.ask("/echo", method="POST", body=b"12345", **bearer)
    assert (answer.status, answer.headers[VERSION]) == (413, "next")
    answer = await kitchen.ask("/echo", method="POST", body=b"1234", **bearer)
    assert (answer.body, answer.headers[VERSION]) == (b"1234", "next")
    assert "authorization" not in canary.backends["next"].requests[-1].headers
    page = {"Origin": "http://evil.test"}
    answer = await kitchen.ask("/x", **bearer, **page)
    assert (answer.status, answer.headers[VERSION]) == (403, "next")
    preflight = {"Origin": "http://page.test", "Access-Control-Request-Method": "POST"}
    answer = await kitchen.ask("/x", method="OPTIONS", **preflight)
    assert answer.headers["access-control-allow-origin"] == "http://page.test"
    assert canary.asked == {"next": 1}


async def test_a_sleeping_version_is_woken_by_its_own_demand(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 50})
    await canary.change("next", replicas=())
    waiting = await kitchen.send("/x", Hotplate_Version="next")
    name = canary.routes["next"].name
    await until(lambda: kitchen.gateway.report().routes[name].queued == 1)
    assert kitchen.gateway.report().routes[kitchen.route.name].demand == 0
    assert (await kitchen.ask("/x", Hotplate_Version=MAIN)).status == 200
    await canary.change("next", replicas=(canary.replica("next"),))
    assert (await waiting.answer()).headers[VERSION] == "next"


async def test_a_body_that_comes_slowly_is_counted_with_its_own_version(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 50})
    await canary.change("next", replicas=())
    caller = await kitchen.caller()
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nHotplate-Version: next\r\nContent-Length: 3\r\n\r\n"
    caller.send_raw(head + b"a")
    server = canary.server("next")
    await until(lambda: server.bodies.held_bytes == 1)
    assert server.demand().queued == 1, "it wakes the version"
    assert kitchen.server.bodies.held_bytes == kitchen.server.demand().queued == 0
    await canary.change("next", replicas=(canary.replica("next"),))
    caller.send_raw(b"bc")
    answer = await caller.answer()
    assert (answer.body, answer.headers[VERSION]) == (b"abc", "next")
    assert server.bodies.held_bytes == 0


async def test_streams_and_websockets_of_a_version_outlast_every_change(
    canary: Canary, kitchen: Kitchen
) -> None:
    async def switch(request: Request, connection: Connection) -> None:
        connection.writer.write(SWITCH)
        connection.writer.write(b"[" + await connection.reader.readexactly(4) + b"]")
        await connection.reader.read()
        connection.writer.close()

    backend = canary.backends["next"]
    backend.on("/ws", switch, raw=True)
    await canary.serve({"next": 100})
    stream, socket = await kitchen.send("/stream"), await kitchen.caller()
    status, headers = await stream.head()
    assert (status, headers[VERSION]) == (200, "next")
    socket.send("/ws", Connection="Upgrade", Upgrade="websocket")
    status, headers = await socket.head()
    assert (status, headers[VERSION]) == (101, "next")
    for weight in (50, 0, 20):
        await canary.serve({"next": weight, "other": 3})
    await canary.serve({"next": 10}, route_type=RouteType.QUERY, route_by="user")
    assert backend.running == 2
    socket.send_raw(b"ping")
    assert await socket.reader.readexactly(6) == b"[ping]"
    backend.gate.set()
    assert [await stream.chunk() for _ in range(3)] == [b"piece", b"rest", b""]
    socket.leave()


async def test_what_waits_stays_where_it_is_while_weights_change(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 100})
    callers = [await kitchen.send("/slow") for _ in range(SLOTS + 3)]
    server = canary.server("next")
    await until(lambda: server.queue.queued == 3)
    await canary.serve({"next": 0})
    assert (server.queue.queued, server.queue.in_flight) == (3, SLOTS)
    canary.backends["next"].gate.set()
    for caller in callers:
        assert (await caller.answer()).headers[VERSION] == "next"
    assert canary.asked == {"next": SLOTS + 3}


async def test_what_waits_for_a_version_that_ends_goes_to_main(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 100})
    running = [await kitchen.send("/slow") for _ in range(SLOTS)]
    server = canary.server("next")
    await until(lambda: server.queue.in_flight == SLOTS)
    waiting = await kitchen.send("/x")
    half = await kitchen.caller()
    half.send_raw(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
    await until(lambda: server.queue.queued == 1 and server.bodies.any_waiting)
    await canary.serve({})
    answer = await waiting.answer()
    assert (answer.body, VERSION in answer.headers) == (b"ok /x", False)
    half.send_raw(b"b")
    assert (await half.answer()).body == b"ab"
    assert canary.asked == {"next": SLOTS, MAIN: 2}
    assert not server.is_over
    canary.backends["next"].gate.set()
    for caller in running:
        assert (await caller.answer()).body == b"slow"
    await until(lambda: server.is_over)
    assert list(kitchen.gateway.report().routes) == [kitchen.route.name]


async def test_a_version_that_comes_back_while_it_ends_serves_again(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 100})
    running = await kitchen.send("/slow")
    await until(lambda: canary.backends["next"].running == 1)
    await canary.serve({})
    await canary.serve({"next": 100})
    assert (await kitchen.ask("/x")).headers[VERSION] == "next"
    canary.backends["next"].gate.set()
    assert (await running.answer()).body == b"slow"


async def test_a_deployment_that_goes_takes_its_versions_along(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 100})
    running = [await kitchen.send("/slow") for _ in range(SLOTS)]
    await until(lambda: canary.server("next").queue.in_flight == SLOTS)
    waiting = await kitchen.send("/x")
    await until(lambda: canary.server("next").queue.queued == 1)
    await kitchen.gateway.apply(RouteTable(kitchen.gateway.version + 1))
    answer = await waiting.answer()
    assert (answer.status, answer.error["code"]) == (503, "route_closed")
    assert answer.headers[VERSION] == "next"
    canary.backends["next"].gate.set()
    for caller in running:
        assert (await caller.answer()).body == b"slow"
    await until(lambda: not kitchen.gateway.report().routes)


async def test_twenty_changes_of_weights_fail_nothing(canary: Canary, kitchen: Kitchen) -> None:
    await canary.serve({"next": 10})
    async with Load(kitchen.route.port, 8) as load:
        for number in range(20):
            kind = RouteType.RANDOM if number % 2 else RouteType.QUERY
            await canary.serve(WEIGHTS[number % 3], route_type=kind, route_by="user")
            await until(partial(load.has, load.answered + 20))
        await load.stop()
    assert (load.failures, load.failed) == ([], 0)
    assert set(canary.asked) == {MAIN, "next", "other"}


async def test_a_gateway_that_stops_finishes_what_its_versions_run(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 100})
    caller = await kitchen.send("/slow")
    await until(lambda: canary.backends["next"].running == 1)
    closing = asyncio.create_task(kitchen.gateway.close(5))
    await until(lambda: canary.server("next").closing)
    canary.backends["next"].gate.set()
    assert (await caller.answer()).body == b"slow"
    await closing


async def test_requests_sent_ahead_are_answered_in_their_order_by_their_versions(
    canary: Canary, kitchen: Kitchen
) -> None:
    await canary.serve({"next": 0})
    caller = await kitchen.caller()
    caller.send("/slow", Hotplate_Version="next")
    caller.send("/x", Hotplate_Version=MAIN)
    caller.send("/y", Hotplate_Version="next")
    await until(lambda: canary.backends["next"].running == 1)
    canary.backends["next"].gate.set()
    answers = [await caller.answer() for _ in range(3)]
    assert [answer.body for answer in answers] == [b"slow", b"ok /x", b"ok /y"]
    assert [answer.headers[VERSION] for answer in answers] == ["next", MAIN, "next"]


async def test_a_caller_that_takes_nothing_of_a_versions_answer_gives_its_slot_to_who_waits_there(
    canary: Canary, kitchen: Kitchen
) -> None:
    async def much(request: Request, connection: Connection) -> None:
        connection.answer(b"x" * (32 << 20))
        await connection.writer.drain()

    canary.backends["next"].on("/much", much)
    kitchen.limit(take_s=0.2, stall_s=0.2)
    await canary.serve({"next": 100})
    server = canary.server("next")
    server.dispatcher.limits = kitchen.server.dispatcher.limits
    await canary.change("next", replicas=(canary.replica("next", concurrency=1),))
    greedy = await kitchen.caller()
    greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
    greedy.send("/much")
    await until(lambda: canary.backends["next"].running == 1)
    waiting = await kitchen.send("/x")
    assert (await waiting.answer()).body == b"ok /x"
