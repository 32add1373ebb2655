"""The control plane's end of the gateway's line, in a test's hands."""

from __future__ import annotations

import asyncio
import json

from aiohttp import WSCloseCode, web

from hotplate.serving.gateway.protocol.headers import GATEWAY_FIELD
from hotplate.serving.gateway.protocol.routes import DemandReport, Route, RouteDemand, RouteTable
from tests.support.ports import free_port

TOKEN = "gateway-token"


class ControlPlane:
    """Accepts gateways, sends tables, keeps every report."""

    def __init__(self) -> None:
        self.port = free_port()
        self.reports: list[DemandReport] = []
        self.newest: dict[str, DemandReport] = {}
        """The last report of each gateway, by its id."""
        self.sockets: list[web.WebSocketResponse] = []
        self.opened = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Starts, or starts again on the same port."""
        app = web.Application()
        app.router.add_get("/internal/gateway", self._accept)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        for socket in list(self.sockets):
            await socket.close(code=WSCloseCode.GOING_AWAY)
        if self._runner is not None:
            await self._runner.cleanup()

    async def send(self, version: int, *routes: Route) -> None:
        await self.say(json.dumps(RouteTable(version, routes).to_json()))

    async def say(self, text: str) -> None:
        for socket in self.sockets:
            await socket.send_str(text)

    def last(self, name: str) -> RouteDemand | None:
        return self.reports[-1].routes.get(name) if self.reports else None

    async def quiet(self, seconds: float) -> int:
        """How many reports come in that time."""
        before = len(self.reports)
        await asyncio.sleep(seconds)
        return len(self.reports) - before

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened += 1
        self.sockets.append(socket)
        async for message in socket:
            now = asyncio.get_running_loop().time()
            report = DemandReport.from_json(json.loads(message.data), now)
            self.reports.append(report)
            self.newest[request.headers.get(GATEWAY_FIELD, "")] = report
        self.sockets.remove(socket)
        return socket
