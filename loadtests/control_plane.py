"""A stand-in for the control plane: tells one gateway one route table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from hotplate.serving.gateway.routes import DemandReport, RouteTable
from loadtests.child import START_S, BenchmarkFailed


class ControlPlane:
    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._in_force: asyncio.Future[DemandReport] = asyncio.get_running_loop().create_future()
        self.url = ""

    async def in_force(self) -> None:
        """Wait until the gateway serves the table. Raises BenchmarkFailed if it does not."""
        try:
            async with asyncio.timeout(START_S):
                report = await self._in_force
        except TimeoutError:
            raise BenchmarkFailed(f"the gateway has no routes after {START_S:g} s") from None
        for name, demand in report.routes.items():
            if demand.error:
                raise BenchmarkFailed(f"the gateway does not serve {name}: {demand.error}")

    async def accept(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json(self._table.to_json())
        async for message in socket:
            report = DemandReport.from_json(json.loads(message.data))
            if report.version == self._table.version and not self._in_force.done():
                self._in_force.set_result(report)
        return socket


@asynccontextmanager
async def telling(table: RouteTable) -> AsyncIterator[ControlPlane]:
    """A control plane for the time of the block."""
    plane = ControlPlane(table)
    app = web.Application()
    app.router.add_get("/internal/gateway", plane.accept)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        plane.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield plane
    finally:
        await runner.cleanup()
