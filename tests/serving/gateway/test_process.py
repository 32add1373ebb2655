from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp

from hotplate.serving.gateway.protocol.routes import RouteTable
from hotplate.serving.gateway.sources.last_table import TableFile
from tests.support.gateway.control_planes import TOKEN, ControlPlane
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until
from tests.support.ports import free_port

MAIN = """
import sys
from pathlib import Path
from hotplate.serving.gateway.server import GatewaySettings, Linked, run
settings = GatewaySettings(Linked(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
run(settings, lambda port: print(port, flush=True))
"""


class Process:
    """A gateway in a process of its own; it does not outlive its test."""

    def __init__(self, process: asyncio.subprocess.Process, admin_port: int) -> None:
        self.process = process
        self.admin_port = admin_port

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, url: str, state_dir: Path) -> AsyncIterator[Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MAIN, url, TOKEN, str(state_dir), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            yield cls(process, int(await process.stdout.readline()))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()

    async def admin(self, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
            session.get(f"http://127.0.0.1:{self.admin_port}{path}") as response,
        ):
            return response.status, await response.text()


async def test_a_process_serves_reports_shows_itself_and_ends_on_sigterm(
    kitchen: Kitchen, plane: ControlPlane, tmp_path: Path
) -> None:
    async with Process.start(plane.url, tmp_path) as gateway:
        port = free_port()
        name = kitchen.route.name
        await until(lambda: plane.reports)
        await plane.send(3, replace(kitchen.route, port=port, replicas=(kitchen.replica(),)))
        await until(lambda: plane.reports[-1].version == 3)
        running, waiting = await kitchen.caller(port), await kitchen.caller(port)
        assert (await running.ask("/x")).status == 200
        running.send("/slow")
        await until(lambda: kitchen.backend.running == 1)
        waiting.send("/y")
        await until(lambda: (last := plane.last(name)) is not None and last.demand == 2)

        status, text = await gateway.admin("/healthz")
        assert (status, '"version": 3' in text) == (200, True)
        status, text = await gateway.admin(f"/deployments/{name}/queue")
        assert (status, '"queued": 1' in text, '"id": "r1"' in text) == (200, True, True)
        assert (await gateway.admin("/deployments/acme/none/queue"))[0] == 404
        _, metrics = await gateway.admin("/metrics")
        for line in (
            f'hotplate_gateway_requests_total{{route="{name}",status="2xx"}} 1.0',
            f'hotplate_gateway_queued_requests{{route="{name}"}} 1.0',
            f'hotplate_gateway_in_flight_requests{{route="{name}"}} 1.0',
            f'hotplate_gateway_slots{{route="{name}"}} 1.0',
            f'hotplate_gateway_wait_seconds_count{{route="{name}"}} 2.0',
        ):
            assert line in metrics

        gateway.process.send_signal(signal.SIGTERM)
        answer = await waiting.answer()
        assert (answer.status, answer.error["code"]) == (503, "route_closed")
        kitchen.backend.gate.set()
        assert (await running.answer()).body == b"slow"
        assert await gateway.process.wait() == 0


async def test_a_process_starts_from_its_last_table_without_a_control_plane(
    kitchen: Kitchen, tmp_path: Path
) -> None:
    port = free_port()
    route = replace(kitchen.route, port=port, replicas=(kitchen.replica(),))
    TableFile(tmp_path).save(RouteTable(5, (route,)))
    async with Process.start(f"http://127.0.0.1:{free_port()}", tmp_path) as gateway:
        answer = await (await kitchen.caller(port)).ask("/x")
        assert answer.status == 200
        assert await gateway.terminate() == 0


def test_the_gateway_imports_nothing_heavy() -> None:
    heavy = ("torch", "bentoml", "kubernetes", "sqlalchemy", "numpy", "transformers")
    code = (
        "import sys, hotplate.serving.gateway.server; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
