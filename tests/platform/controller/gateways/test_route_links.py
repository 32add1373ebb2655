"""Lines of several gateways to one control plane: what counts is what a route's owner says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientSession, WSServerHandshakeError, web
from aiohttp.test_utils import TestServer

from hotplate.platform.controller.gateways.route_links import HEARTBEAT_S, RouteLinks
from hotplate.serving.gateway.protocol.headers import FLEET_FIELD, GATEWAY_FIELD
from hotplate.serving.gateway.protocol.routes import DemandReport, Route, RouteDemand
from tests.support.patience import PATIENCE_S, until

CHAT = "acme/chat"


class Plane:
    """A control plane's end, and the gateways that a test connects to it."""

    def __init__(self, heartbeat_s: float) -> None:
        self.left = asyncio.Event()
        """Set whenever a gateway has left, or has another demand."""
        self.came = 0
        self.told: list[tuple[str, str]] = []
        self.changed: list[set[str]] = []
        """The routes of each report that are looked at again."""
        self.gateways = RouteLinks(
            self._changed,
            self._came,
            lambda kind, message: self.told.append((kind, message)),
            heartbeat_s=heartbeat_s,
        )
        self.stack = AsyncExitStack()
        self._url = ""

    def _changed(self, routes: Sequence[str]) -> None:
        self.left.set()
        self.changed.append(set(routes))

    def _came(self) -> None:
        self.came += 1

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/internal/gateway", self.gateways.handle)
        server = await self.stack.enter_async_context(TestServer(app))
        self._url = str(server.make_url("/internal/gateway"))
        self._http = await self.stack.enter_async_context(ClientSession())

    async def gateway(self, name: str, fleet: str = "/tmp/fleet", autoping: bool = True) -> Any:
        fields = {GATEWAY_FIELD: name, FLEET_FIELD: fleet}
        return await self._http.ws_connect(self._url, headers=fields, autoping=autoping)


@asynccontextmanager
async def opened(heartbeat_s: float) -> AsyncIterator[Plane]:
    plane = Plane(heartbeat_s)
    await plane.open()
    yield plane
    await plane.gateways.close()
    await plane.stack.aclose()


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with opened(HEARTBEAT_S) as plane:
        yield plane


async def say(socket: Any, version: int, **demand: Any) -> None:
    report = DemandReport(version, {CHAT: RouteDemand(**demand)} if demand else {})
    await socket.send_json(report.to_json(0.0))


async def test_every_gateway_gets_the_routes_and_the_owner_alone_is_believed(plane: Plane) -> None:
    one, two = await plane.gateway("one"), await plane.gateway("two")
    plane.gateways.publish([Route(CHAT, "127.0.0.1", 1)])
    for socket in (one, two):
        table = await asyncio.wait_for(socket.receive_json(), PATIENCE_S)
        assert [route["name"] for route in table["routes"]] == [CHAT]
    await say(one, 1, queued=3, in_flight=1)
    await until(lambda: (d := plane.gateways.demand(CHAT)) is not None and d.demand == 4)
    await say(two, 1, queued=1, owned=False)
    await until(lambda: plane.told)
    assert plane.came == 1
    assert plane.told == [("GatewayJoined", "gateway two has joined: 2 gateways serve now")]
    demand = plane.gateways.demand(CHAT)
    assert demand is not None and demand.demand == 4
    await say(one, 1, owned=False)
    await until(lambda: plane.gateways.demand(CHAT) is None)  # it goes over: nobody's word counts
    await say(two, 1, queued=5)
    await until(lambda: (d := plane.gateways.demand(CHAT)) is not None and d.demand == 5)


async def test_a_replica_is_idle_when_every_gateway_says_so(plane: Plane) -> None:
    one, two = await plane.gateway("one"), await plane.gateway("two")
    plane.gateways.publish([Route(CHAT, "127.0.0.1", 1)])
    await say(one, 0)
    await say(one, 1, in_flight=0)
    await until(lambda: plane.gateways.in_force)
    assert not plane.gateways.idle("r1"), "the other has said nothing yet"
    await say(two, 0, owned=False)
    await say(two, 1, owned=False, busy={"r1": 1})
    await until(lambda: plane.told)
    assert not plane.gateways.idle("r1")
    await say(two, 0, owned=False)
    await until(lambda: plane.gateways.idle("r1"))
    await say(two, 0, in_flight=0)
    await until(lambda: not plane.gateways.idle("r1"))  # an owner has to know that it drains


async def test_a_gateway_that_ends_is_told_and_the_others_go_on(plane: Plane) -> None:
    one, two = await plane.gateway("one"), await plane.gateway("two")
    await say(one, 0, queued=2)
    await say(two, 0, owned=False)
    await until(lambda: len(plane.told) == 1)
    await one.close()
    await until(lambda: len(plane.told) == 2)
    kind, message = plane.told[-1]
    assert kind == "GatewayLeft"
    assert "gateway one has gone, and 1 still serve" in message
    assert plane.gateways.connected
    assert plane.gateways.demand(CHAT) is None, "until the other owns it"
    await two.close()
    await until(lambda: not plane.gateways.connected)
    assert len(plane.told) == 2, "that there is none is told by the platform's checks"


async def test_a_gateway_of_another_fleet_is_turned_away(plane: Plane) -> None:
    one = await plane.gateway("one")
    with pytest.raises(WSServerHandshakeError) as refused:
        await plane.gateway("two", fleet="/elsewhere")
    assert refused.value.status == 409
    await one.close()

    await plane.left.wait()
    await plane.gateway("two", fleet="/elsewhere")


async def test_what_a_gateway_said_that_hangs_counts_no_more() -> None:
    """Its connection stays open: nothing but its silence tells that it is gone."""
    async with opened(heartbeat_s=0.5) as plane:
        hung = await plane.gateway("hung", autoping=False)
        await say(hung, 1, queued=3)
        await until(lambda: plane.gateways.connected)
        plane.left.clear()
        await until(lambda: not plane.gateways.connected)
        assert plane.gateways.demand(CHAT) is None  # nobody says: what there is stays
        assert plane.left.is_set() and not hung.closed


async def test_abandoned_handlers_are_those_of_all_gateways_and_no_reason_to_wait(
    plane: Plane,
) -> None:
    one, two = await plane.gateway("one"), await plane.gateway("two")
    await say(one, 0, owned=False, abandoned={"r1": 2})
    await say(two, 0, abandoned={"r1": 1, "r2": 1})
    found = plane.gateways
    await until(lambda: [found.abandoned(r) for r in ("r1", "r2", "r3")] == [3, 1, 0])
    assert found.idle("r1")
    assert found.busy("r1") == 0
    demand = found.demand(CHAT)
    assert demand is not None and demand.demand == 0


async def test_tasks_that_a_former_owner_has_sent_count_too(plane: Plane) -> None:
    """It retires when they have ended, and the replica is waited for until then."""
    one, two = await plane.gateway("one"), await plane.gateway("two")
    await say(one, 1, owned=False, tasks={"r1": 1})
    await say(two, 1, tasks={"r1": 1, "r2": 1})
    await until(lambda: [plane.gateways.tasks(r) for r in ("r1", "r2", "r3")] == [2, 1, 0])
    await one.close()
    await until(lambda: plane.gateways.tasks("r1") == 1)


async def test_routes_are_in_force_once_a_gateway_has_confirmed_the_last_of_them(
    plane: Plane,
) -> None:
    one = await plane.gateway("one")
    await say(one, 0)
    await until(lambda: plane.gateways.connected)
    assert not plane.gateways.in_force
    plane.gateways.publish([Route(CHAT, "127.0.0.1", 1)])
    assert not plane.gateways.in_force
    await say(one, 1, queued=1)
    await until(lambda: plane.gateways.in_force)
    plane.gateways.publish([])
    assert not plane.gateways.in_force


async def test_tables_that_come_faster_than_they_can_be_read_are_left_out(plane: Plane) -> None:
    """All routes are in each: thousands that wake would have us write for minutes."""
    routes = [Route(f"acme/{number}", "127.0.0.1", 1) for number in range(3000)]
    one = await plane.gateway("one")
    plane.gateways.publish(routes)
    assert (await asyncio.wait_for(one.receive_json(), PATIENCE_S))["version"] == 1
    for limit in range(5):
        plane.gateways.publish([replace(routes[0], queue_limit=limit), *routes[1:]])
        await asyncio.sleep(0.001)  # time for it to be sent, were that all that it waits for
    last = await asyncio.wait_for(one.receive_json(), PATIENCE_S)
    assert (last["version"], last["routes"][0]["queue_limit"]) == (6, 4)


async def test_of_many_routes_only_those_with_news_are_looked_at(plane: Plane) -> None:
    """Else each start among many would have all of them looked at."""
    chat, echo, code = (Route(name, "127.0.0.1", 1) for name in (CHAT, "acme/echo", "acme/code"))
    one = await plane.gateway("one")
    idle = {route.name: RouteDemand() for route in (chat, echo, code)}

    async def news(version: int, **other: RouteDemand) -> set[str]:
        plane.changed.clear()
        report = DemandReport(version, idle | {f"acme/{name}": d for name, d in other.items()})
        await one.send_json(report.to_json(0.0))
        await until(lambda: plane.changed)
        return plane.changed[0]

    plane.gateways.publish([chat, echo, code])
    assert await news(0) == set(idle)
    assert await news(1) == set(), "they are in force, and that is no demand"
    plane.gateways.publish([chat, replace(echo, queue_limit=1), code])
    assert await news(2) == set()
    assert await news(2, code=RouteDemand(queued=1)) == {"acme/code"}
    assert await news(2, code=RouteDemand(queued=1), echo=RouteDemand(queued=1)) == {"acme/echo"}
    assert await news(2, echo=RouteDemand(queued=1)) == {"acme/code"}
    assert await news(2) == {"acme/echo"}


async def test_routes_of_an_earlier_control_plane_confirm_nothing_of_this_one(
    plane: Plane,
) -> None:
    """Its tables were numbered from 1 too."""
    plane.gateways.publish([Route(CHAT, "127.0.0.1", 1, replicas=())])
    one = await plane.gateway("one")
    await say(one, 1)
    await until(lambda: plane.gateways.connected)
    assert not plane.gateways.in_force
    assert not plane.gateways.idle("r1")
    versions = [
        (await asyncio.wait_for(one.receive_json(), PATIENCE_S))["version"] for _ in range(2)
    ]
    assert versions == [1, 2]
    await say(one, 2)
    await until(lambda: plane.gateways.in_force)
