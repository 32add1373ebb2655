"""The control plane's links to the gateways: routes go out, demand comes in.

A gateway connects by WebSocket, reports the table that it has and the demand of its routes, and
gets the routes whenever they change. Gateways of one machine settle among themselves which of them
owns a route; here the owner's word counts. `task_links` has a second socket per gateway, on which
tasks are offered to be run.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from aiohttp import WSCloseCode, WSMsgType, web

from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.serving.gateway.protocol.headers import FLEET_FIELD, GATEWAY_FIELD
from hotplate.serving.gateway.protocol.route_counts import RouteCounts
from hotplate.serving.gateway.protocol.routes import (
    AcceptedToken,
    DemandReport,
    Route,
    RouteDemand,
    RouteTable,
)

log = logging.getLogger("hotplate.gateways")

Tokens: TypeAlias = Mapping[str, tuple[AcceptedToken, ...]]
NO_TOKENS: Tokens = {}

HEARTBEAT_S = 10.0
"""A gateway that does not answer a ping within half of it is gone: it hangs, or its machine does.
What it said last counts until then, 15 s at most."""

PAUSE_PER_TABLE, PAUSE_S = 5.0, 0.25
"""After a table, until the next: so many times what it took to write, for reading it takes as long,
and a report answers it; and the most. What changes meanwhile goes together. A hundred deployments
that wake at once change the routes a thousand times, and all routes are in each table."""


class RouteLink:
    """One gateway's line."""

    def __init__(self, gateway: str, socket: web.WebSocketResponse) -> None:
        self.gateway = gateway
        self.socket = socket
        self.report: DemandReport | None = None
        self.report_number = 0
        """When the report came, as a running number."""
        self.unsent = asyncio.Event()


class RouteLinks:
    """Holds the lines to the gateways of one fleet, which share a machine.

    Among themselves they see to it that each route has one owner, also while the control plane is
    down; here only what the owner says counts as demand. A gateway of another fleet is turned away
    while there are any: it would be a second authority over the same slots.
    """

    def __init__(
        self,
        changed: Callable[[Sequence[str]], None],
        came: Callable[[], None],
        notify: Callable[[str, str], None],
        used: Callable[[Sequence[str]], None] = lambda digests: None,
        counted: Callable[[Mapping[str, RouteCounts]], None] = lambda counts: None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """`changed` is called with each report, and gets the routes whose demand has changed: what
        drains may be looked at, as it may be `idle` now. `came` is called when a gateway is
        there and none was: it is there when its first report is. `notify` gets what an operator
        should know: a kind of event and a sentence. `used` gets digests of tokens that callers of
        deployments have used, and `counted` what was counted of routes, before `changed` is called.
        """
        self._notify = notify
        self._used = used
        self._counted = counted
        self._changed = changed
        self._came = came
        self._heartbeat_s = heartbeat_s
        self._table = RouteTable(version=0)
        self._known = False
        """Whether the routes are known: from the first `publish` on, be they none."""
        self._lines: list[RouteLink] = []
        self._fleet = ""
        self._reports = 0

    @property
    def connected(self) -> bool:
        """Whether any gateway has reported."""
        return any(line.report is not None for line in self._lines)

    @property
    def in_force(self) -> bool:
        """Whether a gateway has confirmed the routes that were published last."""
        reports = [line.report for line in self._lines if line.report is not None]
        return self._known and any(report.version >= self._table.version for report in reports)

    def demand(self, route: str) -> RouteDemand | None:
        """What a route has to do, or None while no gateway is there to say."""
        if not self.connected:
            return None
        newest_first = sorted(self._lines, key=lambda line: line.report_number, reverse=True)
        reports = [line.report.routes for line in newest_first if line.report is not None]
        reported = [routes[route] for routes in reports if route in routes]
        if not reported:
            return RouteDemand()
        return next((demand for demand in reported if demand.owned), None)

    def publish(
        self,
        routes: Sequence[Route],
        tokens: Tokens = NO_TOKENS,
        readers: Sequence[MetricsReader] = (),
    ) -> None:
        """Put these routes in force, the tokens that they take by organization, and those that show
        metrics, if they differ from those that are."""
        table = RouteTable(self._table.version, tuple(routes), tokens, tuple(readers))
        if not self._known or table != self._table:
            self._known = True
            self._renew(replace(table, version=table.version + 1))

    def idle(self, replica: str) -> bool:
        """Whether the gateways confirmed, after they were told to drain it, that nothing runs."""
        return bool(self._lines) and all(
            line.report is not None and self._confirms(line.report, replica) for line in self._lines
        )

    def busy(self, replica: str) -> int:
        """How many of its slots are taken, as far as a gateway has said: of each route that leads
        to it, whose owner knows best, and counts what former owners have sent too."""
        reported: dict[str, int] = {}
        for line in self._lines:
            for name, demand in line.report.routes.items() if line.report is not None else ():
                reported[name] = max(reported.get(name, 0), demand.busy.get(replica, 0))
        return sum(reported.values())

    def tasks(self, replica: str) -> int:
        """How many kept tasks run on it, also those that former owners of its route have sent."""
        reports = [line.report for line in self._lines if line.report is not None]
        return sum(d.tasks.get(replica, 0) for r in reports for d in r.routes.values())

    def answers(self, route: str) -> dict[str, Mapping[str, Mapping[str, int]]]:
        """How replicas of a route have answered, by gateway (which counts since it started),
        version and kind."""
        reports = ((line.gateway, line.report) for line in self._lines)
        return {
            gateway: report.routes[route].answers if route in report.routes else {}
            for gateway, report in reports
            if report is not None
        }

    def abandoned(self, replica: str) -> int:
        """How many handlers go on in it for callers that have gone, without a slot; each gateway
        says it of those that it has sent."""
        reports = [line.report for line in self._lines if line.report is not None]
        return sum(d.abandoned.get(replica, 0) for r in reports for d in r.routes.values())

    def _confirms(self, report: DemandReport, replica: str) -> bool:
        demands = report.routes.values()
        if any(demand.busy.get(replica) for demand in demands):
            return False
        # One that owns nothing sends nothing there, whichever table it has: it may be retiring.
        owns_nothing = bool(demands) and not any(demand.owned for demand in demands)
        return owns_nothing or report.version >= self._table.version

    async def close(self) -> None:
        """Part with the gateways, which go on alone. To be called before the server is shut down:
        from then on it reads nothing, and each side would wait for the other's last word."""
        for line in list(self._lines):
            await line.socket.close(code=WSCloseCode.GOING_AWAY)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /internal/gateway`: the WebSocket of a gateway (already authorized)."""
        fleet = request.headers.get(FLEET_FIELD, "")
        if self._lines and fleet != self._fleet:
            raise web.HTTPConflict(
                text=f"the connected gateways share the folder {self._fleet!r}, and this one has "
                f"{fleet!r}: start it on their machine, with the same TMPDIR"
            )
        self._fleet = fleet
        socket = web.WebSocketResponse(heartbeat=self._heartbeat_s)
        line = RouteLink(request.headers.get(GATEWAY_FIELD, ""), socket)
        self._lines.append(line)
        sender = None
        try:
            await socket.prepare(request)
            sender = asyncio.create_task(self._send(line))
            log.info("gateway %s connected", line.gateway)
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    now = asyncio.get_running_loop().time()
                    self._receive(line, DemandReport.from_json(message.json(), now))
        finally:
            if sender is not None:
                sender.cancel()
            self._gone(line)
        return socket

    async def _send(self, line: RouteLink) -> None:
        now = asyncio.get_running_loop().time
        line.unsent.set()
        while True:
            await line.unsent.wait()
            line.unsent.clear()
            if self._known:
                began = now()
                text = json.dumps(self._table.to_json())
                took_s = now() - began
                await line.socket.send_str(text)
                await asyncio.sleep(min(PAUSE_PER_TABLE * took_s, PAUSE_S))

    def _renew(self, table: RouteTable) -> None:
        self._table = table
        for line in self._lines:
            line.unsent.set()

    def _receive(self, line: RouteLink, report: DemandReport) -> None:
        first, before = not self.connected, line.report
        line.report = report
        self._reports += 1
        line.report_number = self._reports
        # What it says first it says before it has read anything here.
        stale = before is None and self._known and report.version == self._table.version
        if stale or report.version > self._table.version:
            # It has served for an earlier control plane on this data; go on from its number.
            self._renew(replace(self._table, version=report.version + 1))
        if report.used:
            self._used(report.used)
        if report.counted:
            self._counted(report.counted)
        if first:
            self._came()
        elif before is None:
            message = f"gateway {line.gateway} has joined: {len(self._lines)} gateways serve now"
            self._notify("GatewayJoined", message)
        if before is None:
            self._changed([*report.routes, *(route.name for route in self._table.routes)])
        else:
            self._changed(_news(before.routes, report.routes))

    def _gone(self, line: RouteLink) -> None:
        self._lines.remove(line)
        log.warning("gateway %s disconnected", line.gateway)
        if line.report is not None and self._lines:
            self._notify(
                "GatewayLeft",
                f"gateway {line.gateway} has gone, and {len(self._lines)} still serve; "
                "start it again if nobody stopped it",
            )
        self._changed([route.name for route in self._table.routes])


def _news(before: Mapping[str, RouteDemand], after: Mapping[str, RouteDemand]) -> Sequence[str]:
    """The routes of which a gateway says something else than before."""
    return sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
