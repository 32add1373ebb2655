"""A canary behind two gateways: the deployment's owner chooses, and each answer counts once."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import MAIN, VersionShare, laid_out
from tests.serving.gateway.replicas.test_relay import Pair
from tests.serving.gateway.replicas.test_relay import pair as pair  # the fixture
from tests.serving.gateway.test_process import Process
from tests.support.gateway.backends import Backend
from tests.support.gateway.callers import Caller
from tests.support.gateway.control_planes import ControlPlane
from tests.support.gateway.load import Load
from tests.support.patience import until
from tests.support.ports import free_port

FIELD = "hotplate-version"
NAME = "acme/echo"
SLOTS = 4


@pytest.fixture
async def backends() -> AsyncIterator[dict[str, Backend]]:
    found = {MAIN: Backend(), "next": Backend()}
    for backend in found.values():
        await backend.start()
    yield found
    for backend in found.values():
        backend.gate.set()
        await backend.stop()


def routes(port: int, backends: dict[str, Backend], weight: float) -> Sequence[Route]:
    replicas = {
        version: (ReplicaRoute(version, backend.address, SLOTS, version=f"{version}@1"),)
        for version, backend in backends.items()
    }
    share = VersionShare("next", f"{NAME}{VERSION}next", weight)
    public = Route(NAME, "127.0.0.1", port, replicas=replicas[MAIN], versions=laid_out([share]))
    return public, Route(share.route, "", 0, replicas=replicas["next"])


def answers(plane: ControlPlane) -> Counter[str]:
    """What all gateways together have counted, by version."""
    found: Counter[str] = Counter()
    for report in plane.newest.values():
        for demand in report.routes.values():
            for version, kinds in demand.answers.items():
                found[version] += sum(kinds.values())
    return found


async def test_whoever_is_asked_the_owner_chooses_and_an_answer_counts_once(
    backends: dict[str, Backend], plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with (
        Process.start(plane.url, tmp_path / "one"),
        Process.start(plane.url, tmp_path / "two"),
    ):
        await until(lambda: len(plane.sockets) == 2)
        await plane.send(1, *routes(port, backends, 20))
        await until(lambda: in_force(plane, 1))
        await until(lambda: settled(plane))
        told: Counter[str] = Counter()
        for _ in range(100):  # the kernel gives each connection to one of the two
            caller = await Caller.to(port)
            answer = await caller.ask("/x")
            assert answer.status == 200, answer
            told[answer.headers[FIELD]] += 1
            caller.leave()
        assert abs(told["next"] - 20) <= 3
        assert {version: len(backend.requests) for version, backend in backends.items()} == told
        await until(lambda: sum(answers(plane).values()) == 100)
        assert answers(plane) == {f"{version}@1": count for version, count in told.items()}
        caller = await Caller.to(port)
        assert (await caller.ask("/x", Hotplate_Version="gone")).error["code"] == "unknown_version"
        caller.leave()


def in_force(plane: ControlPlane, version: int) -> bool:
    """Whether every gateway has this table."""
    return {report.version for report in plane.newest.values()} == {version}


def settled(plane: ControlPlane) -> bool:
    """Whether one gateway owns both routes, and the other one knows that."""
    owners = [
        {name for name, demand in report.routes.items() if demand.owned}
        for report in plane.newest.values()
    ]
    return sorted(map(len, owners)) == [0, 2]


async def test_changes_and_replaced_gateways_fail_nothing(
    backends: dict[str, Backend], plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with Process.start(plane.url, tmp_path / "one") as first:
        await until(lambda: plane.sockets)
        await plane.send(1, *routes(port, backends, 50))
        await until(lambda: in_force(plane, 1))
        async with (
            Load(port, 8) as lasting,
            Load(port, 4, per_connection=1) as brief,
            Process.start(plane.url, tmp_path / "two"),
        ):
            await until(lambda: len(plane.newest) == 2 and settled(plane))
            for table in range(2, 8):
                await plane.send(table, *routes(port, backends, table * 10))
                await until(partial(in_force, plane, table))
            first.process.send_signal(signal.SIGTERM)
            assert await first.process.wait() == 0
            ended_at = lasting.now
            await until(lambda: len(lasting.since(ended_at)) > 40)
            await asyncio.gather(lasting.stop(), brief.stop())
            assert [load.failures for load in (lasting, brief)] == [[], []]
            assert [load.failed for load in (lasting, brief)] == [0, 0]
    assert all(len(backend.requests) > 40 for backend in backends.values())
    assert all(backend.peak <= SLOTS for backend in backends.values())


async def test_what_waits_for_a_version_goes_over_with_its_deployment(pair: Pair) -> None:
    async with Backend() as backend:
        share = VersionShare("next", pair.name + VERSION + "next", 100)
        replica = ReplicaRoute("n", backend.address, 1, version="next@1")
        pair.beside = (Route(share.route, "", 0, replicas=(replica,)),)
        public = {"versions": laid_out([share])}
        await pair.serve(0, **public)
        running, waiting = await pair.caller(0), await pair.caller(0)
        running.send("/slow")
        await until(lambda: backend.running == 1)
        waiting.send("/x", method="POST", body=b"x")
        first = pair.first.server(share.route)
        assert first is not None
        await until(lambda: first.queue.queued == 1)
        await pair.join(**public)
        await pair.owned_by_second()
        await until(lambda: {g.owner(share.route) for g in pair.gateways} == {pair.owner})
        second = pair.second.server(share.route)
        assert second is not None
        await until(lambda: second.queue.queued == 1)
        assert backend.running == backend.peak == 1
        backend.gate.set()
        for caller, body in ((running, b"slow"), (waiting, b"ok /x")):
            answer = await caller.answer()
            assert (answer.body, answer.headers[FIELD]) == (body, "next")
        assert backend.peak == 1
        await until(lambda: first.queue.idle and second.queue.idle)
        for server in (first, second):
            assert server.demand().answers == {"next@1": {"2xx": 1}}
        # A version that ends while another gateway has passed its caller on: `main` answers.
        backend.gate.clear()
        running.send("/slow")
        await until(lambda: backend.running == 1)
        waiting.send("/y")
        await until(lambda: second.queue.queued == 1)
        pair.beside = ()
        await pair.serve(1)
        answer = await waiting.answer()
        assert (answer.body, FIELD in answer.headers) == (b"ok /y", False)
        await pair.serve(0)
        backend.gate.set()
        assert (await running.answer()).body == b"slow"


async def test_who_loses_the_deployment_while_main_answers_says_that_it_was_main(
    pair: Pair,
) -> None:
    share = VersionShare("next", pair.name + VERSION + "next", 20)
    pair.beside = (Route(share.route, "", 0, replicas=()),)
    public = {"versions": laid_out([share])}
    await pair.serve(0, **public)
    running = await pair.caller(0)
    pair.backend.gate.clear()
    running.send("/slow", Hotplate_Version=MAIN)
    await until(lambda: pair.backend.running == 1)
    await pair.join(**public)
    await pair.owned_by_second()
    pair.backend.gate.set()
    answer = await running.answer()
    assert (answer.body, answer.headers[FIELD]) == (b"slow", MAIN)


async def test_a_version_that_nobody_owns_for_a_moment_is_waited_for(pair: Pair) -> None:
    async with Backend() as backend:
        share = VersionShare("next", pair.name + VERSION + "next", 100)
        replica = ReplicaRoute("n", backend.address, 1)
        fleet = pair.first.fleet
        assert fleet is not None
        held = fleet.lock_owner(share.route)
        assert held is not None
        pair.beside = (Route(share.route, "", 0, replicas=(replica,)),)
        await pair.serve(0, versions=laid_out([share]), timeout_s=1)
        waiting, main = await pair.caller(0), await pair.caller(0)
        waiting.send("/x")
        server = pair.first.server(share.route)
        assert server is not None
        await until(lambda: server.queue.queued == 1)
        assert (await main.ask("/x", Hotplate_Version=MAIN)).status == 200
        held.release()
        answer = await waiting.answer()
        assert (answer.status, answer.headers[FIELD]) == (200, "next")
