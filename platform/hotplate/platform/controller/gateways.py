"""The control plane's end of the line to the gateway: routes go out, demand comes in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from aiohttp import WSCloseCode, WSMsgType, web

from hotplate.serving.gateway.routes import DemandReport, Route, RouteDemand, RouteTable

log = logging.getLogger("hotplate.gateways")


class Gateways:
    """Holds the line to the one gateway that owns every slot.

    A second gateway is turned away while the first one is connected: two authorities over one
    replica's slots would send it more than it can do.
    """

    def __init__(self, changed: Callable[[Sequence[str]], None], came: Callable[[], None]) -> None:
        """`changed` is told the routes whose demand is another one now, `came` that a gateway is.

        A gateway is there when its first report is.
        """
        self._changed = changed
        self._came = came
        self._table = RouteTable(version=0)
        self._known = False
        """Whether the routes are known: from the first `publish` on, be they none."""
        self._report: DemandReport | None = None
        self._socket: web.WebSocketResponse | None = None
        self._unsent = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._report is not None

    def demand(self, route: str) -> RouteDemand | None:
        """What a route has to do, or None while no gateway is there to say."""
        if self._report is None:
            return None
        return self._report.routes.get(route, RouteDemand())

    def publish(self, routes: Sequence[Route]) -> None:
        """Put these routes in force, if they differ from those that are."""
        if not self._known or tuple(routes) != self._table.routes:
            self._known = True
            self._table = RouteTable(self._table.version + 1, tuple(routes))
            self._unsent.set()

    def idle(self, replica: str) -> bool:
        """Whether the gateway confirmed, after it was told to drain it, that nothing runs there."""
        report = self._report
        if report is None or report.version < self._table.version:
            return False
        return not any(demand.busy.get(replica) for demand in report.routes.values())

    async def close(self) -> None:
        """Part with the gateway, which goes on alone. To be called before the server is shut down:
        from then on it reads nothing, and each side would wait for the other's last word."""
        if self._socket is not None:
            await self._socket.close(code=WSCloseCode.GOING_AWAY)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /internal/gateway`: the WebSocket of a gateway (already authorized)."""
        if self._socket is not None:
            raise web.HTTPConflict(text="another gateway is connected")
        socket = web.WebSocketResponse(heartbeat=20)
        await socket.prepare(request)
        self._socket = socket
        sender = asyncio.create_task(self._send(socket))
        log.info("gateway connected")
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._receive(DemandReport.from_json(message.json()))
        finally:
            sender.cancel()
            self._socket = None
            self._report = None
            log.warning("gateway disconnected")
            self._changed([route.name for route in self._table.routes])
        return socket

    async def _send(self, socket: web.WebSocketResponse) -> None:
        self._unsent.set()
        while True:
            await self._unsent.wait()
            self._unsent.clear()
            if self._known:
                await socket.send_json(self._table.to_json())

    def _receive(self, report: DemandReport) -> None:
        before = self._report
        self._report = report
        if report.version > self._table.version:
            # It has served for an earlier control plane on this data; go on from its number.
            self._table = RouteTable(report.version + 1, self._table.routes)
            self._unsent.set()
        if before is None:
            self._came()
        known = before.routes if before else {}
        if before is None or before.version != report.version:
            self._changed([*report.routes, *known, *(route.name for route in self._table.routes)])
        else:
            self._changed([name for name, d in report.routes.items() if known.get(name) != d])
