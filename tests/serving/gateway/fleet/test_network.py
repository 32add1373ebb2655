"""Gateways that meet over the network: one owner, takeover, and who is let in."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from hotplate.serving.gateway.fleet.members import rendezvous_owner
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from tests.serving.gateway.fleet.test_several_gateways import Slow
from tests.support.gateway.callers import Caller
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.gateway.load import Load
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port

HOST = "model.test"
SLOTS = 2
TAKEOVER_S = 2.0


class Cluster:
    """A control plane and gateways of it, each on an address of its own, as on a machine of its
    own."""

    def __init__(self, folder: Path, plane: ControlPlane, backend: Slow) -> None:
        self.folder = folder
        self.plane = plane
        self.backend = backend
        self.replica = ReplicaRoute("r1", backend.address, SLOTS)
        self.ports: list[int] = []
        self.peers = [free_port() for _ in range(3)]
        self.gateways: list[GatewayProcess] = []
        self.stack = AsyncExitStack()

    async def start(self, token: str = TOKEN) -> GatewayProcess:
        """One more, at the next of the peers' addresses."""
        number = len(self.gateways)
        (self.folder / f"token-{number}").write_text(token)
        self.ports.append(free_port())
        names = ",".join(f"localhost:{port}" for port in self.peers)
        gateway = await self.stack.enter_async_context(
            GatewayProcess.start(
                self.folder,
                f"--control-plane={self.plane.url}",
                f"--token-file={self.folder / f'token-{number}'}",
                f"--state={self.folder / f'state-{number}'}",
                f"--listen=127.0.0.1:{self.ports[-1]}",
                f"--listen-peers=127.0.0.1:{self.peers[number]}",
                f"--peers-from={names}",
            )
        )
        self.gateways.append(gateway)
        await gateway.ready()
        return gateway

    async def serve(self, **changes: Any) -> None:
        route = Route("acme/chat", "", 0, (self.replica,), hosts=(HOST,), **changes)
        await until(lambda: len(self.plane.sockets) == len(self.gateways))
        await self.plane.send(1, route)
        for gateway in self.gateways:
            await until(healthy(gateway, lambda health: health["version"] == 1))

    async def owner(self) -> tuple[GatewayProcess, GatewayProcess]:
        """The owner and another one, once all agree on it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                healths = [(await each.admin("/healthz"))[1] for each in self.gateways]
                ids = [health["gateway"] for health in healths]
                rightful = rendezvous_owner("acme/chat", ids)
                known = all(len(health["peers"]) == len(ids) - 1 for health in healths)
                if known and all(h["owners"]["acme/chat"] == rightful for h in healths):
                    owner = self.gateways[ids.index(rightful)]
                    return owner, next(each for each in self.gateways if each is not owner)
                await asyncio.sleep(0.02)

    def port(self, gateway: GatewayProcess) -> int:
        return self.ports[self.gateways.index(gateway)]

    async def caller(self, gateway: GatewayProcess) -> Caller:
        caller = await Caller.to(self.port(gateway))
        self.stack.callback(caller.leave)
        return caller


@pytest.fixture
async def cluster(tmp_path: Path, plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Slow() as backend:
        cluster = Cluster(tmp_path, plane, backend)
        async with cluster.stack:
            yield cluster


async def test_one_gateway_owns_what_both_serve_and_a_killed_owner_is_replaced(
    cluster: Cluster,
) -> None:
    await cluster.start()
    await cluster.start()
    await cluster.serve()
    owner, other = await cluster.owner()
    async with Load(cluster.port(owner), 8) as lost, Load(cluster.port(other), 8) as load:
        await until(lambda: load.answered >= 8 and lost.answered >= 8)
        assert cluster.backend.peak == SLOTS, "one queue for all callers"
        _, queue = await other.admin("/deployments/acme/chat/queue")
        assert queue["slots"] == SLOTS
        owner.process.send_signal(signal.SIGKILL)
        await owner.process.wait()
        killed_at = load.now
        await until(lambda: len(load.since(killed_at)) >= 4)
        assert load.since(killed_at)[0] - killed_at < TAKEOVER_S
    refused = [answer for _, answer in load.answers if answer.status != 200]
    assert len(refused) <= SLOTS, "only what had begun, which is not asked again"
    assert not load.failures


async def test_one_that_is_terminated_answers_all_and_what_waits_goes_to_the_next_owner(
    cluster: Cluster,
) -> None:
    first = await cluster.start()
    second = await cluster.start()
    await cluster.serve()
    owner, other = await cluster.owner()
    running = [await cluster.caller(owner) for _ in range(SLOTS)]
    for caller in running:
        caller.send("/slow")
    await until(lambda: cluster.backend.running == SLOTS)
    kept, waiting = await cluster.caller(owner), await cluster.caller(owner)
    waiting.send("/work", method="POST", body=b"x")
    owner.process.send_signal(signal.SIGTERM)
    await until(lambda: "this gateway retires" in owner.log)
    new = await cluster.caller(owner)
    new.send("/work", method="POST", body=b"x")  # nobody has told it yet
    status, _ = await owner.admin("/readyz")
    assert status == 503
    kept.send("/work", method="POST", body=b"x")
    for caller in (waiting, new, kept):
        answer = await caller.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
    cluster.backend.gate.set()
    for caller in running:
        assert (await caller.answer()).status == 200, "what runs is answered"
    assert await owner.process.wait() == 0
    assert {first, second} == {owner, other}


async def test_the_only_one_that_is_terminated_answers_those_who_have_not_heard(
    cluster: Cluster,
) -> None:
    gateway = await cluster.start()
    await cluster.serve()
    kept = await cluster.caller(gateway)
    gateway.process.send_signal(signal.SIGTERM)
    await until(lambda: "this gateway retires" in gateway.log)
    for caller in (kept, await cluster.caller(gateway)):
        answer = await caller.ask("/work", method="POST", body=b"x")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await gateway.process.wait() == 0


async def test_a_stopped_gateway_has_gone_and_is_back_when_it_goes_on(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.start()
    await cluster.serve()
    owner, other = await cluster.owner()
    caller = await cluster.caller(other)
    assert (await caller.ask("/work", method="POST", body=b"x")).status == 200
    owner.process.send_signal(signal.SIGSTOP)
    stopped_at = asyncio.get_running_loop().time()
    assert (await caller.ask("/work", method="POST", body=b"x")).status == 200
    assert asyncio.get_running_loop().time() - stopped_at < TAKEOVER_S + 0.5
    assert "has gone" in other.log
    owner.process.send_signal(signal.SIGCONT)
    await cluster.owner()


async def test_who_does_not_know_the_token_is_no_gateway(cluster: Cluster) -> None:
    first = await cluster.start()
    stranger = await cluster.start(token="another")
    await until(lambda: "no gateway of ours" in first.log and "no gateway of ours" in stranger.log)
    assert (await first.admin("/healthz"))[1]["peers"] == []
    for said in (b"@gateway\n" * 8, b"acme/chat\n" * 8):
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.peers[0])
        writer.write(said)
        with suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_S):
                shown = await reader.read()
                assert TOKEN.encode() not in shown
        writer.close()


def healthy(gateway: GatewayProcess, is_so: Callable[[dict[str, Any]], bool]) -> Callable[[], Any]:
    async def look() -> bool:
        return is_so((await gateway.admin("/healthz"))[1])

    return look
