"""Two gateways of one fleet in one process: what one passes on, and what becomes of the slots."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.gateway.all_routes import ALONE_LOOK_S, Gateway
from hotplate.serving.gateway.fleet.members import file_name, rendezvous_owner
from hotplate.serving.gateway.fleet.membership import Fleet
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route, RouteTable
from tests.support.gateway.backends import SWITCH, Backend
from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import LIMITS
from tests.support.patience import until
from tests.support.ports import free_port

NAMES = itertools.count(1)


class Pair:
    """Gateways with a port each for one deployment. The second joins late."""

    def __init__(self, folder: Path) -> None:
        self.backend = Backend()
        self.gateways: list[Gateway] = []
        self.ports: list[int] = []
        self.callers: list[Caller] = []
        self._folder = folder
        # A name that the second one inherits, so that ownership moves when it comes.
        self._fleets = [Fleet(folder, started_at) for started_at in (1.0, 2.0)]
        self.name = next(name for n in NAMES if self._second_owns(name := f"acme/{n}"))
        self.beside: tuple[Route, ...] = ()
        """Other routes of every table."""

    def _second_owns(self, name: str) -> bool:
        ids = [fleet.id for fleet in self._fleets]
        return rendezvous_owner(name, ids) == ids[1]

    @property
    def first(self) -> Gateway:
        return self.gateways[0]

    @property
    def second(self) -> Gateway:
        return self.gateways[1]

    async def join(self, **changes: Any) -> None:
        gateway = Gateway(LIMITS, self._fleets[len(self.gateways)])
        self.gateways.append(gateway)
        self.ports.append(free_port())
        await gateway.join(asyncio.Protocol)
        await self.serve(len(self.gateways) - 1, **changes)

    async def serve(self, number: int, **changes: Any) -> None:
        replicas = (ReplicaRoute("r1", self.backend.address, 1),)
        route = Route(self.name, "127.0.0.1", self.ports[number], replicas=replicas)
        gateway = self.gateways[number]
        table = RouteTable(gateway.version + 1, (replace(route, **changes), *self.beside))
        await gateway.apply(table)

    async def caller(self, number: int) -> Caller:
        caller = await Caller.to(self.ports[number])
        self.callers.append(caller)
        return caller

    async def second_takes_over(self) -> None:
        """It joins, and both know that it is the owner."""
        await self.join()
        await self.owned_by_second()

    async def owned_by_second(self) -> None:
        await until(lambda: {g.owner(self.name) for g in self.gateways} == {self.owner})

    @property
    def owner(self) -> str:
        """The second one, once it has joined."""
        return self._fleets[1].id

    def queue(self, gateway: Gateway) -> Any:
        server = gateway.server(self.name)
        assert server is not None
        return server.queue


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    # A short name, for its sockets.
    with tempfile.TemporaryDirectory() as top:
        pair = Pair(Path(top) / "fleet")
        await pair.backend.start()
        await pair.join()
        yield pair
        pair.backend.gate.set()
        for caller in pair.callers:
            caller.leave()
        await until(lambda: all(pair.queue(g).idle for g in pair.gateways))
        for gateway in pair.gateways:
            await gateway.close(1)
        await pair.backend.stop()
        assert os.listdir(top) == [], "the last one leaves nothing behind"


async def test_a_relayed_request_is_the_callers_own_to_the_replica(pair: Pair) -> None:
    await pair.second_takes_over()
    caller = await pair.caller(0)
    answer = await caller.ask("/echo", method="POST", body=b"x" * 100_000, x_request_id="mine")
    assert (answer.status, len(answer.body)) == (200, 100_000)
    seen = pair.backend.requests[-1].headers
    assert (seen["x-forwarded-for"], seen["x-request-id"]) == ("127.0.0.1", "mine")
    assert (seen["host"], seen["x-forwarded-host"]) == ("model.test", "model.test")
    assert (await caller.ask("/again")).status == 200, "the connection stays"


async def test_a_caller_that_leaves_a_relaying_gateway_leaves_the_owner_too(pair: Pair) -> None:
    await pair.second_takes_over()
    running, waiting = await pair.caller(0), await pair.caller(0)
    running.send("/slow")
    await until(lambda: pair.backend.running == 1)
    waiting.send("/x")
    owners = pair.queue(pair.second)
    await until(lambda: owners.queued == 1)
    waiting.leave()
    await until(lambda: owners.queued == 0)
    running.leave()
    await until(lambda: pair.queue(pair.first).idle)
    assert owners.in_flight == 1, "the handler runs on, and has its slot"
    # It does not think less of the owner for that.
    health = pair.first.server(pair.name).queue.replicas  # type: ignore[union-attr]
    assert not any(replica.ejection_reason for replica in health)
    pair.backend.gate.set()
    await until(lambda: owners.in_flight == 0)


async def test_the_owner_alone_decides_who_may_come_and_who_waits(pair: Pair) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    terms = {"token_digests": (digest,), "queue_limit": 0}
    await pair.serve(0, **terms)
    await pair.join(**terms)
    await pair.owned_by_second()
    caller = await pair.caller(0)
    answer = await caller.ask("/x")
    assert (answer.status, answer.error["code"]) == (401, "unauthorized")
    running = await pair.caller(1)
    running.send("/slow", authorization="Bearer secret")
    await until(lambda: pair.backend.running == 1)
    answer = await caller.ask("/x", authorization="Bearer secret")
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    pair.backend.gate.set()
    assert (await running.answer()).body == b"slow"
    assert (await caller.ask("/x", authorization="Bearer secret")).status == 200


async def test_what_runs_keeps_its_slot_and_what_waits_goes_over_to_a_new_owner(
    pair: Pair,
) -> None:
    running, waiting = await pair.caller(0), await pair.caller(0)
    running.send("/slow")
    await until(lambda: pair.backend.running == 1)
    waiting.send("/x", method="POST", body=b"x")
    await until(lambda: pair.queue(pair.first).queued == 1)
    await pair.second_takes_over()
    owners = pair.queue(pair.second)
    await until(lambda: owners.queued == 1)
    assert [replica.taken_elsewhere for replica in owners.replicas] == [1]
    busy = pair.second.report().routes[pair.name].busy
    assert busy == {"r1": 1}
    assert pair.backend.running == pair.backend.peak == 1
    pair.backend.gate.set()
    assert (await running.answer()).body == b"slow"
    assert (await waiting.answer()).body == b"ok /x"
    assert pair.backend.peak == 1
    await until(lambda: not any(replica.taken_elsewhere for replica in owners.replicas))


def counted(gateway: Gateway, name: str) -> RouteCounts:
    gateway.report()
    taken = gateway.take_counts(asyncio.get_running_loop().time())
    return taken.get(name, RouteCounts())


async def test_each_request_is_counted_by_one_gateway(pair: Pair) -> None:
    replicas = (ReplicaRoute("r1", pair.backend.address, 1, version="main@1"),)
    await pair.serve(0, replicas=replicas)
    running = await pair.caller(0)
    running.send("/slow")
    await until(lambda: pair.backend.running == 1)
    await pair.join(replicas=replicas)
    await pair.owned_by_second()
    pair.backend.gate.set()
    assert (await running.answer()).status == 200  # by the first one, which owns nothing now
    asking = await pair.caller(0)
    assert (await asking.ask("/x")).status == 200  # passed on to the second one
    await until(lambda: all(pair.queue(gateway).idle for gateway in pair.gateways))
    first, second = (counted(gateway, pair.name) for gateway in pair.gateways)
    assert (first.answered, second.answered) == (1, 1)
    assert first.answers == ()
    assert sum(count for _, count in second.answers) == 1


async def test_an_owner_that_ends_hands_on_what_the_others_have_passed_to_it(pair: Pair) -> None:
    await pair.second_takes_over()
    ending = pair.gateways.pop()
    await ending.close(1)
    pair.gateways.append(pair.first)
    caller = await pair.caller(0)
    assert (await caller.ask("/x", method="POST", body=b"x")).status == 200
    assert pair.first.owner(pair.name) == pair.first.fleet.id  # type: ignore[union-attr]
    pair.gateways.pop()


async def test_an_owner_that_is_lost_is_told_from_a_replica_that_is(pair: Pair) -> None:
    await pair.second_takes_over()
    caller = await pair.caller(0)
    caller.send("/slow", method="POST", body=b"x")
    await until(lambda: pair.backend.running == 1)
    owner = pair.second.server(pair.name)
    assert owner is not None
    owner.callers.abort()
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (502, "replica_failed")
    message = answer.error["message"]
    assert message.startswith(f"{pair.name}: the gateway that has its queue ended the connection")
    assert ".sock" not in message


async def test_an_owner_that_comes_back_is_passed_requests_while_older_ones_end(pair: Pair) -> None:
    await pair.second_takes_over()
    running, other = await pair.caller(0), await pair.caller(0)
    running.send("/slow")
    await until(lambda: pair.backend.running == 1)
    server = pair.first.server(pair.name)
    assert server is not None
    route = server.route
    server.follow(replace(route, replicas=()))  # as when nobody owned it for a moment
    server.follow(route)
    pair.backend.gate.set()
    assert (await running.answer()).body == b"slow"
    assert (await other.ask("/x")).status == 200


async def test_who_waits_is_due_when_it_was_whoever_owns_the_queue(pair: Pair) -> None:
    timeout_s = 1.6
    await pair.serve(0, timeout_s=timeout_s)
    running, waiting = await pair.caller(0), await pair.caller(0)
    running.send("/slow")
    await until(lambda: pair.backend.running == 1)
    waiting.send("/x")
    sent_at = asyncio.get_running_loop().time()
    await until(lambda: pair.queue(pair.first).queued == 1)
    await asyncio.sleep(0.4)
    joined_at = asyncio.get_running_loop().time()
    await pair.join(timeout_s=60.0)
    await pair.owned_by_second()
    await until(lambda: pair.queue(pair.second).queued == 1)
    owner = pair.second.server(pair.name)
    assert owner is not None
    [ticket] = owner.queue.waiting
    # What passes on the way counts for the caller, and is less than it had waited before.
    assert sent_at + timeout_s - 0.1 < ticket.ends_at < joined_at + timeout_s
    answer = await waiting.answer()
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")


async def test_nobody_but_a_gateway_says_when_an_answer_is_due(pair: Pair) -> None:
    caller = await pair.caller(0)
    assert (await caller.ask("/x", hotplate_due_in="0.001")).status == 200
    assert "hotplate-due-in" not in pair.backend.requests[-1].headers


async def test_what_another_gateway_keeps_ends_for_the_replica_when_it_ends_here(
    pair: Pair,
) -> None:
    first = await pair.caller(0)
    assert (await first.ask("/x")).status == 200
    await pair.second_takes_over()
    name = file_name(pair.name)
    caller = await pair.caller(1)
    assert (await caller.ask("/x")).status == 200
    keeper, owner = pair.first.keeper, pair.second.fleet
    assert keeper is not None and owner is not None
    await until(lambda: (backup := keeper.of(owner.id, name)) and len(backup.connections) == 1)
    await pair.serve(1, replicas=())
    await until(lambda: not pair.backend.open)
    backup = keeper.of(owner.id, name)
    assert backup is not None and not backup.connections


async def test_a_newcomer_soon_has_the_connections_of_who_was_alone(pair: Pair) -> None:
    # Until it has, it would give their slots a second time if that one were killed.
    loop = asyncio.get_running_loop()
    began = loop.time()
    (await pair.caller(0)).send("/slow")
    await until(lambda: pair.backend.running == 1)
    await pair.join()
    keeper, fleet = pair.second.keeper, pair.first.fleet
    assert keeper is not None and fleet is not None
    await until(lambda: keeper.of(fleet.id, file_name(pair.name)) is not None)
    assert loop.time() - began < 10 * ALONE_LOOK_S


async def test_the_owner_alone_waits_and_counts_for_callers_of_other_gateways(pair: Pair) -> None:
    pair.backend.never_ends("/ws", SWITCH)
    await pair.second_takes_over()
    first, second = pair.first.server(pair.name), pair.second.server(pair.name)
    assert first is not None and second is not None
    second.dispatcher.limits = replace(second.dispatcher.limits, abandon_s=0.1)
    for _ in range(2):
        caller = await pair.caller(0)
        caller.send("/ws", connection="Upgrade", upgrade="websocket")
        assert (await caller.head())[0] == 101
        caller.leave()
    await until(lambda: second.demand().abandoned == {"r1": 2})
    assert second.queue.in_flight == 0
    await until(lambda: first.queue.idle)
    assert not first.demand().abandoned


async def test_a_tunnel_ends_with_its_gateway_though_connections_outlive_it(pair: Pair) -> None:
    pair.backend.never_ends("/ws", SWITCH)
    await pair.second_takes_over()
    keeper, owner = pair.first.keeper, pair.second.fleet
    assert keeper is not None and owner is not None

    def kept() -> int:
        backup = keeper.of(owner.id, file_name(pair.name))
        return -1 if backup is None else len(backup.connections)

    caller = await pair.caller(1)
    assert (await caller.ask("/x")).status == 200
    await until(lambda: kept() == 1)
    caller.send("/ws", connection="Upgrade", upgrade="websocket")
    assert (await caller.head())[0] == 101
    await until(lambda: kept() == 0)
