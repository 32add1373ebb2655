"""Several routes at one address: each request goes to the route of its host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hotplate.serving.gateway.protocol.cors_rules import Cors
from hotplate.serving.gateway.protocol.routes import SHARED, ReplicaRoute, Route, RouteTable
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import VersionShare
from hotplate.serving.gateway.route_server import RouteServer
from tests.support.gateway.backends import SWITCH, Backend, Connection, Request
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port

CHAT, SPEECH = "chat.models.test", "speech.models.test"


class Street:
    """A gateway with routes that share an address, each with a backend that says its name."""

    def __init__(self, kitchen: Kitchen) -> None:
        self.kitchen = kitchen
        self.shared: Route | None = Route(SHARED, "127.0.0.1", free_port())
        self.backends: dict[str, Backend] = {}
        self.routes: dict[str, Route] = {}

    async def add(self, host: str, **changes: Any) -> Backend:
        """Another route, with a backend."""
        backend = self.backends[host] = Backend()
        await backend.start()

        async def says_its_name(request: Request, connection: Connection) -> None:
            connection.answer(host.encode())

        backend.on("/name", says_its_name)
        replica = ReplicaRoute(host, backend.address, 1)
        name = f"acme/{host.partition('.')[0]}"
        self.routes[host] = Route(name, "", 0, (replica,), hosts=(host,))
        await self.serve(host, **changes)
        return backend

    async def serve(self, of: str = "", more: Sequence[Route] = (), **changes: Any) -> None:
        """The next table, with changes of the route `of` this host."""
        if of:
            self.routes[of] = replace(self.routes[of], **changes)
        routes = (self.kitchen.route, *self.routes.values(), *more)
        gateway = self.kitchen.gateway
        shared = () if self.shared is None else (self.shared,)
        await gateway.apply(RouteTable(gateway.version + 1, routes, shared=shared))

    def server(self, host: str) -> RouteServer:
        server = self.kitchen.gateway.server(self.routes[host].name)
        assert server is not None
        return server

    async def caller(self, host: str) -> Caller:
        assert self.shared is not None
        caller = await self.kitchen.caller(self.shared.port)
        caller.host = host
        return caller

    async def close(self) -> None:
        for backend in self.backends.values():
            backend.gate.set()
            await backend.stop()


@pytest.fixture
async def street(kitchen: Kitchen) -> AsyncIterator[Street]:
    street = Street(kitchen)
    await street.add(CHAT)
    await street.add(SPEECH)
    yield street
    await street.close()


async def test_each_request_of_a_connection_goes_to_the_route_of_its_host(street: Street) -> None:
    caller = await street.caller("")
    assert street.shared is not None
    for spelled in (CHAT, SPEECH, CHAT.upper(), f"{SPEECH}:{street.shared.port}", f"{CHAT}.", CHAT):
        caller.host = spelled
        answer = await caller.ask("/name")
        assert answer.body.decode() == spelled.lower().partition(":")[0].removesuffix(".")
    caller.host = "proxy.test"
    answer = await caller.ask(f"http://{SPEECH}:30080/name")
    assert answer.body.decode() == SPEECH, "the authority of an absolute target goes before Host"


async def test_requests_sent_ahead_are_answered_in_order_by_their_routes(street: Street) -> None:
    caller = await street.caller(CHAT)
    for host in (CHAT, SPEECH, "none.test", CHAT):
        caller.host = host
        caller.send("/name")
    answers = [await caller.answer() for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 404, 200]
    assert [answers[at].body.decode() for at in (0, 1, 3)] == [CHAT, SPEECH, CHAT]


@pytest.mark.parametrize("host", ["none.models.test", "models.test", "", "127.0.0.1"])
async def test_an_unknown_host_is_refused_and_the_connection_stays(
    street: Street, host: str
) -> None:
    caller = await street.caller(host)
    answer = await caller.ask("/name")
    assert (answer.status, answer.error["code"]) == (404, "unknown_host")
    assert repr(host) in answer.error["message"]
    assert not any(known in answer.error["message"] for known in (CHAT, SPEECH))
    answer = await caller.ask("/echo", method="POST", body=b"x" * 100)
    assert answer.error["code"] == "unknown_host"
    caller.host = CHAT
    assert (await caller.ask("/name")).body.decode() == CHAT


async def test_http_1_0_without_a_host_is_refused(street: Street) -> None:
    caller = await street.caller("")
    caller.send_raw(b"GET /name HTTP/1.0\r\n\r\n")
    assert (await caller.answer()).error["code"] == "unknown_host"


async def test_a_full_route_does_not_hold_up_another(street: Street) -> None:
    first, second = await street.caller(CHAT), await street.caller(CHAT)
    first.send("/slow")
    await until(lambda: street.backends[CHAT].running == 1)
    second.send("/name")
    await until(lambda: street.server(CHAT).queue.queued == 1)
    assert (await (await street.caller(SPEECH)).ask("/name")).body.decode() == SPEECH
    street.backends[CHAT].gate.set()
    assert (await first.answer()).body == b"slow"
    assert (await second.answer()).body.decode() == CHAT
    assert street.backends[CHAT].peak == 1
    report = street.kitchen.gateway.report()
    assert {name: demand.completed for name, demand in report.routes.items()} == {
        street.kitchen.route.name: 0,
        "acme/chat": 2,
        "acme/speech": 1,
    }


async def test_a_route_that_ends_finishes_what_runs_and_the_others_go_on(street: Street) -> None:
    running, waiting, other = [await street.caller(host) for host in (CHAT, CHAT, SPEECH)]
    running.send("/slow")
    await until(lambda: street.backends[CHAT].running == 1)
    waiting.send("/name")
    await until(lambda: street.server(CHAT).queue.queued == 1)
    del street.routes[CHAT]
    await street.serve()
    assert (await waiting.answer()).error["code"] == "route_closed"
    answer = await waiting.ask("/name")
    assert answer.error["code"] == "unknown_host", "its connection is every route's"
    assert (await other.ask("/name")).body.decode() == SPEECH
    street.backends[CHAT].gate.set()
    assert (await running.answer()).body == b"slow"
    await until(lambda: "acme/chat" not in street.kitchen.gateway.report().routes)


async def test_a_body_that_arrives_after_its_route_ended_is_refused_in_a_sentence(
    street: Street,
) -> None:
    caller = await street.caller(CHAT)
    head = f"POST /echo HTTP/1.1\r\nHost: {CHAT}\r\nContent-Length: 4\r\n\r\n"
    caller.send_raw(f"{head}ha".encode())
    await until(lambda: street.server(CHAT).bodies.any_waiting)
    route = street.routes.pop(CHAT)
    await street.serve()
    caller.send_raw(b"lf")
    assert (await caller.answer()).error["code"] == "route_closed"
    street.routes[CHAT] = route
    await street.serve()
    assert (await (await street.caller(CHAT)).ask("/name")).body.decode() == CHAT


async def test_a_route_may_change_its_hosts_and_have_an_address_of_its_own(street: Street) -> None:
    caller = await street.caller(CHAT)
    assert (await caller.ask("/name")).body.decode() == CHAT
    await street.serve(CHAT, hosts=("talk.test", "chat.test"))
    assert (await caller.ask("/name")).error["code"] == "unknown_host"
    for host in ("talk.test", "chat.test"):
        caller.host = host
        assert (await caller.ask("/name")).body.decode() == CHAT
    await street.serve(CHAT, hosts=(), host="127.0.0.1", port=free_port())
    assert (await caller.ask("/name")).error["code"] == "unknown_host"
    own = await street.kitchen.caller(street.routes[CHAT].port)
    assert (await own.ask("/name")).body.decode() == CHAT


async def test_the_address_may_move_and_go(street: Street) -> None:
    caller = await street.caller(CHAT)
    assert street.shared is not None
    street.shared = replace(street.shared, port=free_port())
    await street.serve()
    assert (await (await street.caller(SPEECH)).ask("/name")).body.decode() == SPEECH
    assert (await caller.ask("/name")).body.decode() == CHAT, "who is connected stays"
    port, street.shared = street.shared.port, None
    await street.serve()
    with pytest.raises(OSError):
        await street.kitchen.caller(port)


async def test_an_address_that_is_taken_is_every_routes_error(street: Street) -> None:
    assert street.shared is not None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        street.shared = replace(street.shared, port=taken.getsockname()[1])
        await street.serve()
        errors = {n: r.error for n, r in street.kitchen.gateway.report().routes.items()}
        assert errors.pop(street.kitchen.route.name) == ""
        assert all("cannot be listened on" in error for error in errors.values())
    await street.serve()
    assert not any(r.error for r in street.kitchen.gateway.report().routes.values())
    assert (await (await street.caller(CHAT)).ask("/name")).status == 200


async def test_a_version_is_chosen_by_the_same_address(street: Street) -> None:
    beside = Backend()
    await beside.start()
    name = f"acme/chat{VERSION}next"
    version = Route(name, "", 0, (ReplicaRoute("n1", beside.address, 1),))
    await street.serve(CHAT, [version], versions=(VersionShare("next", name, 50),))
    caller = await street.caller(CHAT)
    for wanted in ("next", "main", "next"):
        answer = await caller.ask("/echo", method="POST", body=b"x", Hotplate_Version=wanted)
        assert (answer.body, answer.headers["hotplate-version"]) == (b"x", wanted)
    assert len(beside.requests) == 2
    caller.send("/slow", Hotplate_Version="next")
    await until(lambda: beside.running == 1)
    second = await street.caller(CHAT)
    second.send("/name", Hotplate_Version="next")
    ended = street.kitchen.gateway.server(name)
    assert ended is not None
    await until(lambda: ended.queue.queued == 1)
    await street.serve(CHAT, versions=())
    assert (await second.answer()).body.decode() == CHAT, "main serves what waited for it"
    beside.gate.set()
    assert (await caller.answer()).body == b"slow"
    await until(lambda: street.kitchen.gateway.server(name) is None or ended.is_over)
    await beside.stop()


async def test_pages_are_checked_by_the_routes_own_rules(street: Street) -> None:
    await street.serve(SPEECH, cors=Cors(allow_origins=("https://app.test",)))
    caller = await street.caller(CHAT)
    own = {"Origin": f"http://{CHAT}", "Sec_Fetch_Site": "same-site"}
    assert (await caller.ask("/name", **own)).status == 200
    foreign = {"Origin": "https://app.test", "Sec_Fetch_Site": "cross-site"}
    assert (await caller.ask("/name", **foreign)).error["code"] == "cross_site"
    caller.host = SPEECH
    assert (await caller.ask("/name", **foreign)).status == 200
    evil = {"Origin": "http://evil.test", "Sec_Fetch_Site": "same-origin"}
    caller.host = "evil.test"
    assert (await caller.ask("/name", **evil)).error["code"] == "unknown_host"


async def test_a_websocket_is_tunnelled_to_the_route_of_its_host(street: Street) -> None:
    async def echoes(request: Request, connection: Connection) -> None:
        connection.writer.write(SWITCH)
        connection.writer.write(await connection.reader.readexactly(4))

    street.backends[SPEECH].on("/ws", echoes)
    caller = await street.caller(SPEECH)
    caller.send("/ws", Connection="Upgrade", Upgrade="websocket")
    assert (await caller.head())[0] == 101
    caller.send_raw(b"ping")
    assert await caller.reader.readexactly(4) == b"ping"


async def test_a_gateway_that_stops_finishes_what_runs(street: Street) -> None:
    running, idle = await street.caller(CHAT), await street.caller(SPEECH)
    assert (await idle.ask("/name")).status == 200
    running.send("/slow")
    await until(lambda: street.backends[CHAT].running == 1)
    closing = asyncio.create_task(street.kitchen.gateway.close(5))
    assert await idle.ended()
    assert not closing.done()
    street.backends[CHAT].gate.set()
    answer = await running.answer()
    assert (answer.body, answer.headers["connection"]) == (b"slow", "close")
    await closing
