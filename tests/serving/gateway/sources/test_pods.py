"""A gateway finds pods by the API server of Kubernetes, and believes what they say themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hotplate.serving.gateway.internal_listener import replicas_of
from hotplate.serving.gateway.protocol.routes import PodSource, ReplicaRoute, Route, RouteTable
from hotplate.serving.gateway.sources.pods import Pod, pods_in, with_pods
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.callers import Answer, Caller
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.gateway.slice_server import NAMESPACE, SERVICE, SliceServer, endpoint
from tests.support.patience import until
from tests.support.ports import free_port

NAME, HOST = "acme/chat", "model.test"
ONE, TWO, THREE = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Village:
    """A gateway in a pod, a control plane, an API server, and pods that are addresses of one
    backend."""

    def __init__(self, plane: ControlPlane, api: SliceServer, backend: Backend) -> None:
        self.plane = plane
        self.api = api
        self.backend = backend
        self.port = free_port()
        self.unready: set[str] = set()
        """The pods that answer 503 to the gateway."""
        backend.on("/readyz", self._readyz)
        backend.on("/who", self._who)

    async def _readyz(self, request: Request, connection: Connection) -> None:
        here = connection.writer.get_extra_info("sockname")[0]
        assert request.headers["hotplate-replica"].startswith("uid-")
        status = "503 Service Unavailable" if here in self.unready else "200 OK"
        connection.answer(status=status)

    async def _who(self, request: Request, connection: Connection) -> None:
        connection.answer(request.headers["hotplate-replica"].encode())

    def put(self, *pods: dict[str, object]) -> None:
        self.api.put(self.backend.port, *pods)

    async def ask(self, target: str = "/who") -> Answer:
        caller = await Caller.to(self.port)
        caller.host = HOST
        try:
            return await caller.ask(target)
        finally:
            caller.leave()

    async def answers(self, *uids: str) -> None:
        """Waits until these pods answer, and no others."""
        wanted = {f"{uid} 1".encode() for uid in uids}

        async def asked() -> bool:
            said = await asyncio.gather(*(self.ask() for _ in range(4)))
            return {answer.body for answer in said} == wanted

        await until(asked)


@pytest.fixture
async def village(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Village]:
    api = SliceServer(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    monkeypatch.setenv("HOTPLATE_GATEWAY__SERVICE_ACCOUNT", str(api.account))
    (tmp_path / "token").write_text(TOKEN)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(Backend(host="0.0.0.0"))
        await api.start()
        stack.push_async_callback(api.stop)
        village = Village(plane, api, backend)
        flags = (
            f"--control-plane={plane.url}",
            f"--token-file={tmp_path / 'token'}",
            f"--state={tmp_path / 'state'}",
            f"--listen=127.0.0.1:{village.port}",
        )
        gateway = await stack.enter_async_context(GatewayProcess.start(tmp_path, *flags))
        await gateway.ready()
        await until(lambda: plane.sockets)
        like = ReplicaRoute("", "", 1, worker=True)
        source = PodSource(f"{NAMESPACE}/{SERVICE}", like)
        await plane.send(1, Route(NAME, "", 0, pods=(source,), hosts=(HOST,)))
        await until(lambda: plane.reports and plane.reports[-1].version == 1)
        yield village


async def test_a_pod_has_requests_once_it_has_answered_whatever_kubernetes_says(
    village: Village,
) -> None:
    village.unready = {TWO}
    village.put(endpoint("one", ONE, ready=False), endpoint("two", TWO, ready=True))
    await village.answers("uid-one")
    village.unready = set()
    await village.answers("uid-one", "uid-two")


async def test_a_pod_that_terminates_gets_nothing_new_and_its_address_is_anothers_afterwards(
    village: Village,
) -> None:
    village.put(endpoint("one", ONE, ready=True), endpoint("two", TWO, ready=True))
    await village.answers("uid-one", "uid-two")
    village.put(endpoint("one", ONE, ready=True), endpoint("two", TWO, terminating=True))
    await village.answers("uid-one")
    village.put(endpoint("new", TWO), endpoint("late", THREE, terminating=True))
    await village.answers("uid-new")


async def test_pods_are_found_while_the_control_plane_is_away_and_stay_while_the_api_server_is(
    village: Village,
) -> None:
    api = village.api
    village.put(endpoint("one", ONE))
    await village.answers("uid-one")
    await village.plane.stop()
    village.put(endpoint("two", TWO))
    await village.answers("uid-two")
    await api.stop()
    await village.answers("uid-two")
    village.put(endpoint("three", THREE))
    await api.start()
    await village.answers("uid-three")


async def test_it_lists_anew_when_the_server_has_forgotten_and_goes_on_when_it_is_refused(
    village: Village,
) -> None:
    api = village.api
    village.put(endpoint("one", ONE))
    await village.answers("uid-one")
    lists, watches = api.lists, api.watches
    api.bookmark()
    api.cut()
    await until(lambda: api.watches > watches)
    village.put(endpoint("two", TWO))
    await village.answers("uid-two")
    assert api.lists == lists, "it went on where it was"
    api.statuses = [429, 500, 410]
    api.forget()
    await until(lambda: api.lists > lists)
    assert not api.statuses
    village.put(endpoint("three", THREE))
    await village.answers("uid-three")


def test_pods_of_a_slice() -> None:
    ends = [endpoint("a", "10.0.0.1"), endpoint("b", "fd00::1", terminating=True)]
    ends += [{"addresses": ["10.0.0.2"], "conditions": {}}, {**ends[0], "addresses": []}]
    ports = [{"name": "other", "port": 1}, {"name": "http", "port": 3000}]
    assert pods_in({"endpoints": ends, "ports": ports}) == [
        Pod("a", "uid-a", "10.0.0.1:3000"),
        Pod("b", "uid-b", "[fd00::1]:3000", terminating=True),
    ]
    assert pods_in({"endpoints": ends, "ports": None}) == []
    assert pods_in({"endpoints": None, "ports": ports}) == []


def test_a_pod_that_has_not_answered_may_call_its_siblings() -> None:
    one, two = Pod("one", "u1", "10.0.0.1:3000"), Pod("two", "u2", "10.0.0.2:3000")
    sources = (PodSource("n/s", ReplicaRoute("", "", 3, worker=True)),)
    ends = replace(one, terminating=True)
    (route,) = with_pods((Route(NAME, "", 0, pods=sources),), {"n/s": [two, ends]}, {one})
    like = ReplicaRoute("one", one.address, 3, worker=True, uid="u1", draining=True)
    assert (route.replicas, route.starting) == ((like,), (two.address,))
    assert replicas_of([route]) == {NAME: {b"10.0.0.1", b"10.0.0.2"}}


def test_a_table_keeps_where_pods_are_found() -> None:
    source = PodSource("n/s", ReplicaRoute("", "", 3, worker=True, learns=True))
    table = RouteTable(1, (Route(NAME, "", 0, pods=(source,)),))
    assert RouteTable.from_json(table.to_json()) == table


def test_replicas_that_are_named_stay_while_they_are_there_and_drain_as_somebody_says() -> None:
    like = ReplicaRoute("", "", 2, worker=True)
    named = [
        ReplicaRoute("one", "10.0.0.1:3000", 5, uid="1"),
        ReplicaRoute("two", "10.0.0.2:3000", 5, draining=True, uid="2"),
        ReplicaRoute("gone", "10.0.0.3:3000", 5, uid="3"),
    ]
    route = Route(NAME, "", 0, tuple(named), pods=(PodSource("ns/a", like),))
    there = [
        Pod("one", "1", "10.0.0.1:3000", terminating=True),
        Pod("two", "2", "10.0.0.2:3000"),
        Pod("four", "4", "10.0.0.4:3000"),
        Pod("five", "5", "10.0.0.5:3000"),
    ]
    answered = {replace(there[0], terminating=False), *there[1:3]}
    (merged,) = with_pods([route], {"ns/a": there}, answered)
    assert [(r.id, r.concurrency, r.draining) for r in merged.replicas] == [
        ("one", 5, True),
        ("two", 5, True),
        ("four", 2, False),
    ]
    assert merged.starting == ("10.0.0.5:3000",)
    (unseen,) = with_pods([route], {}, set())
    assert unseen.replicas == tuple(named)
