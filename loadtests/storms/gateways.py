"""Gateways that serve one file together, killed and replaced under load: no slot is given twice.

First the deployment's owner is killed with SIGKILL again and again, and started again, under
closed-loop callers. Then each gateway is replaced by a new one (`--replace`), which must cut
nothing. The replica is any HTTP server: its handlers take 20 to 200 ms, one of twenty ten times as
long, and they go on when their caller has left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.gateway.backends import Backend, Connection, Request
from tests.support.gateway.gateway_processes import GatewayProcess
from tests.support.gateway.load import Load
from tests.support.patience import until
from tests.support.ports import free_port

SLOTS = 2
SERVICE_S = (0.02, 0.2)
LONG_SHARE = 0.05
BACK_S = 4.0
"""How long there may be no answer after a kill: 2 s, and a long handler's time in each slot."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--callers", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    random.seed(flags.seed)
    verdict = Verdict()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(_backend())
        port = free_port()
        file = folder / "routes.toml"
        file.write_text(
            f'[[deployment]]\nname = "chat"\nlisten = "127.0.0.1:{port}"\n'
            f'[[deployment.replica]]\naddress = "{backend.address}"\nconcurrency = {SLOTS}\n'
        )
        trial = _Trial(stack, folder, port, backend, verdict)
        for _ in range(flags.gateways):
            await trial.start()
        await trial.kills(flags.kills, flags.callers)
        await trial.restarts(flags.restarts, flags.callers)
        verdict.figures["most running at once"] = backend.peak
        if backend.peak > SLOTS:
            verdict.broken.append(f"{backend.peak} handlers ran at once, {SLOTS} may")
    return verdict


class _Trial:
    def __init__(
        self, stack: AsyncExitStack, folder: Path, port: int, backend: Backend, verdict: Verdict
    ) -> None:
        self._stack = stack
        self._folder = folder
        self._port = port
        self._backend = backend
        self._verdict = verdict
        self._gateways: list[GatewayProcess] = []

    async def start(self, *flags: str) -> None:
        routes = str(self._folder / "routes.toml")
        gateway = GatewayProcess.start(self._folder, "--routes", routes, *flags)
        self._gateways.append(await self._stack.enter_async_context(gateway))
        await self._gateways[-1].ready()

    async def kills(self, count: int, callers: int) -> None:
        """Kills the owner, waits for the next answer, and starts another."""
        gaps: list[float] = []
        async with Load(self._port, callers) as load:
            for number in range(count):
                await until(partial(load.has, load.answered + 20), 30)
                owner = await self._owner()
                owner.process.send_signal(signal.SIGKILL)
                killed_at = load.now
                await owner.process.wait()
                self._gateways.remove(owner)
                await until(partial(load.since, killed_at), 30)
                gaps.append(load.since(killed_at)[0] - killed_at)
                if gaps[-1] > BACK_S:
                    self._verdict.broken.append(
                        f"kill {number}: the first answer came after {gaps[-1]:.1f} s"
                    )
                await self.start()
        self._verdict.figures |= {
            "kills of the owner": len(gaps),
            "longest until the next answer, s": round(max(gaps, default=0.0), 3),
            "answers under kills": load.answered,
            "of callers of the killed, cut or 502": load.failed,
        }
        if load.failed > count * callers:
            self._verdict.broken.append(f"{load.failed} requests failed in {count} kills")

    async def restarts(self, count: int, callers: int) -> None:
        """Replaces the oldest gateway, while some callers keep their connections."""
        lasting = Load(self._port, callers // 2)
        brief = Load(self._port, callers - callers // 2, per_connection=1)
        async with lasting, brief:
            for _ in range(count):
                oldest = self._gateways.pop(0)
                await self.start("--replace")
                await asyncio.wait_for(oldest.process.wait(), 40)
        failures = [*lasting.failures, *brief.failures]
        failed = lasting.failed + brief.failed
        self._verdict.figures |= {
            "restarts": count,
            "answers under restarts": lasting.answered + brief.answered,
            "failed under restarts": failed,
        }
        if failed:
            self._verdict.broken.append(f"{failed} requests failed in restarts: {failures[:3]}")

    async def _owner(self) -> GatewayProcess:
        healths = [(await gateway.admin("/healthz"))[1] for gateway in self._gateways]
        return _owning(self._gateways, [h["owners"]["chat"] == h["gateway"] for h in healths])


def _owning(gateways: Sequence[GatewayProcess], owning: Sequence[bool]) -> GatewayProcess:
    owners = [gateway for gateway, owns in zip(gateways, owning, strict=True) if owns]
    return owners[0] if owners else gateways[0]


@contextlib.asynccontextmanager
async def _backend() -> AsyncIterator[Backend]:
    async def work(request: Request, connection: Connection) -> None:
        long = random.random() < LONG_SHARE
        await asyncio.sleep(random.uniform(*SERVICE_S) * (10 if long else 1))
        connection.answer(b"done")

    async with Backend() as backend:
        backend.on("/work", work)
        yield backend
