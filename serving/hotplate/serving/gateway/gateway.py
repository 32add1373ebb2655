"""All routes of one gateway: takes over tables, reports demand, ends in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.route_server import Change, RouteServer
from hotplate.serving.gateway.routes import DemandReport, Route, RouteTable


def _nobody_listens(name: str, change: Change) -> None:
    """The listener of a gateway whose demand is not reported."""


class Gateway:
    """The routes in force and those that are still ending."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.version = 0
        """The table in force; 0 = none yet."""
        self.on_change: Callable[[str, Change], None] = _nobody_listens
        """Called with a route's name when its demand has changed."""
        self._servers: dict[str, RouteServer] = {}
        self._stopping = False

    @property
    def servers(self) -> list[RouteServer]:
        """Every route, in the table's order."""
        return list(self._servers.values())

    def server(self, name: str) -> RouteServer | None:
        return self._servers.get(name)

    async def apply(self, table: RouteTable) -> None:
        """Takes over a table whole: new routes listen, removed ones end, the rest goes on.

        A gateway that stops takes no more tables.
        """
        if self._stopping:
            return
        named = {route.name for route in table.routes}
        for name, server in self._servers.items():
            if name not in named and not server.closing:
                server.stop(f"{name} is not served any more.")
        self._forget_ended()
        for route in table.routes:
            await self._serve(route)
        # An address may have become free only by a route that came later in the table.
        for route in table.routes:
            if self._servers[route.name].error:
                await self._serve(route)
        self.version = table.version

    def report(self) -> DemandReport:
        """What every route has to do now; ending routes are in it until they have ended."""
        self._forget_ended()
        return DemandReport(
            version=self.version,
            routes={name: server.demand() for name, server in self._servers.items()},
        )

    async def close(self, grace_s: float) -> None:
        """Accepts nothing more, refuses what waits, lets what runs finish for `grace_s`."""
        self._stopping = True
        for server in self.servers:
            if not server.closing:
                server.stop("This gateway stops; try again.")
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.gather(*(server.ended() for server in self.servers))
        except TimeoutError:
            for server in self.servers:
                server.abandon()

    async def _serve(self, route: Route) -> None:
        server = self._servers.get(route.name)
        if server is None:
            server = RouteServer(route, self.limits, partial(self._changed, route.name))
            self._servers[route.name] = server
        await server.update(route)

    def _changed(self, name: str, change: Change) -> None:
        self.on_change(name, change)

    def _forget_ended(self) -> None:
        for name in [name for name, server in self._servers.items() if server.is_over]:
            del self._servers[name]
