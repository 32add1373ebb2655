"""Several gateways on one file: one authority over every slot, whoever is asked, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from hotplate.serving.gateway.fleet.members import rendezvous_owner
from hotplate.serving.gateway.fleet.membership import Fleet
from tests.serving.gateway.test_alone import deployment
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.gateway.load import Load
from tests.support.patience import PATIENCE_S, until
from tests.support.ports import free_port

SERVICE_S = 0.1
LONG_S = 1.0
BACK_S = 5.0
"""It takes a tenth of that."""
"""Longer than it takes to notice a killed gateway, and than by what requests took before."""


class Slow(Backend):
    """Handlers take their time, whoever has left."""

    def __init__(self) -> None:
        super().__init__()
        self.service_s = SERVICE_S
        self.long = 0
        """Handlers that have begun and take long."""
        self.on("/work", self._work)

    async def _work(self, request: Request, connection: Connection) -> None:
        self.long += self.service_s == LONG_S
        await asyncio.sleep(self.service_s)
        connection.answer(request.headers["x-forwarded-for"].encode())


@pytest.fixture
async def backend() -> AsyncIterator[Slow]:
    async with Slow() as backend:
        yield backend


async def owner_of(*gateways: GatewayProcess) -> tuple[GatewayProcess, GatewayProcess]:
    """The one that owns `chat`, and another."""
    first, second = gateways
    _, health = await first.admin("/healthz")
    mine = health["owners"]["chat"] == health["gateway"]
    return (first, second) if mine else (second, first)


async def agreed(*gateways: GatewayProcess) -> None:
    """Waits until they know each other and name one owner: the one whom all of them make it."""
    for gateway in gateways:
        await gateway.ready()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            healths = [(await gateway.admin("/healthz"))[1] for gateway in gateways]
            owners = {health["owners"].get("chat") for health in healths}
            known = all(len(health["peers"]) == len(gateways) - 1 for health in healths)
            if known and owners == {
                rendezvous_owner("chat", [each["gateway"] for each in healths])
            }:
                return
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def two_gateways(
    folder: Path, backend: Backend, port: int, hosts: Sequence[str] = ()
) -> AsyncIterator[tuple[GatewayProcess, GatewayProcess]]:
    """An owner and another one, on files of their own that have one deployment in common."""
    files = [folder / f"{name}.toml" for name in ("one", "two")]
    for file in files:
        admin = f'admin = "127.0.0.1:{free_port()}"\n'
        file.write_text(admin + deployment("chat", port, backend, concurrency=2, hosts=hosts))
    async with (
        GatewayProcess.start(folder, "--routes", str(files[0])) as first,
        GatewayProcess.start(folder, "--routes", str(files[1])) as second,
    ):
        await agreed(first, second)
        yield await owner_of(first, second)


@pytest.mark.parametrize("hosts", [(), ("model.test",)], ids=["own-address", "shared-address"])
async def test_a_killed_owner_is_replaced_and_no_slot_is_given_twice(
    backend: Slow, tmp_path: Path, hosts: Sequence[str]
) -> None:
    port = free_port()
    async with (
        two_gateways(tmp_path, backend, port, hosts) as (owner, other),
        Load(port, 16) as load,
    ):
        await until(lambda: load.answered >= 4)
        _, mine = await owner.admin("/deployments/chat/queue")
        _, theirs = await other.admin("/deployments/chat/queue")
        assert mine["slots"] == theirs["slots"] == 2
        assert backend.peak == 2
        backend.service_s = LONG_S
        await until(lambda: backend.long == 2)
        backend.service_s = SERVICE_S
        finished = backend.finished
        owner.process.send_signal(signal.SIGKILL)
        await owner.process.wait()
        killed_at = load.now
        await until(lambda: load.since(killed_at))
        assert load.since(killed_at)[0] - killed_at < BACK_S
        await until(lambda: backend.finished >= finished + 8)
        assert backend.peak == 2
        assert "slots that other gateways have taken" in other.log
    assert load.failed > 0, "the killed one had callers"
    refused = [answer for _, answer in load.answers if answer.status != 200]
    assert len(refused) <= 2, "only what may have begun is not asked anew by the other one"
    assert set(load.bodies) == {b"127.0.0.1"}


@pytest.mark.parametrize("hosts", [(), ("model.test",)], ids=["own-address", "shared-address"])
async def test_a_new_version_takes_over_and_no_request_is_cut(
    backend: Backend, tmp_path: Path, hosts: Sequence[str]
) -> None:
    port = free_port()
    file = tmp_path / "routes.toml"
    file.write_text(deployment("chat", port, backend, concurrency=2, hosts=hosts))
    async with GatewayProcess.start(tmp_path, "--routes", str(file)) as old:
        await old.ready()
        async with Load(port, 8) as lasting, Load(port, 8, per_connection=1) as brief:
            await restarted(tmp_path, old, (lasting, brief), backend)


async def restarted(
    folder: Path, old: GatewayProcess, loads: tuple[Load, Load], backend: Backend
) -> None:
    """Starts another in its place, while callers ask it and ask on."""
    lasting, brief = loads
    await until(lambda: lasting.answered and brief.answered)
    flags = ("--routes", str(folder / "routes.toml"), "--replace")
    async with GatewayProcess.start(folder, *flags) as new:
        await new.ready()
        assert await asyncio.wait_for(old.process.wait(), PATIENCE_S) == 0
        ended_at = lasting.now
        await until(lambda: len(lasting.since(ended_at)) > 4)
        assert "is replaced by this one" in new.log
        assert "another gateway's socket" in new.log
        assert [load.failures for load in loads] == [[], []]
        assert [load.failed for load in loads] == [0, 0]
        assert backend.peak == 2
        for load in loads:
            await load.stop()


def test_who_joins_in_the_moment_of_a_look_is_seen_by_the_next(tmp_path: Path) -> None:
    """The folder's time does not always tell: the kernel's clock goes by milliseconds."""
    alone = Fleet(tmp_path, 1.0)
    alone.join()
    for number in range(200):
        assert not alone.look()
        other = Fleet(tmp_path, 2.0 + number)
        other.join()
        assert alone.look() == [other.id]
        other.leave()
    alone.leave()
