"""One address for several routes: each request goes to the route of the host that it names.

It is a route itself, without replicas, whose callers' requests belong to other routes, as those of
a canary's public route may belong to a version. Its own are those that name no route's host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hotplate.machine.access.own_hosts import host_of
from hotplate.serving.gateway.callers.route_listener import Peers
from hotplate.serving.gateway.errors import GatewayError, UnknownHost
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import Change, Route
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.telemetry.access_log import AccessLog

SPELLINGS: Final = 1024
"""Limit of the ways to write a host that are remembered; at one more they are forgotten."""


class SharedListener(RouteServer):
    """Serves the routes that have `hosts`."""

    def __init__(
        self, route: Route, limits: Limits, peers: Peers | None, access_log: AccessLog | None
    ) -> None:
        """`peers`: gateways that may listen at the same address."""
        super().__init__(route, limits, self._tell, peers, access_log)
        self._servers: dict[str, RouteServer] = {}
        self._spelled: dict[bytes, RouteServer] = {}
        """The routes that were found, by the host as it was written."""

    def share(self, servers: Iterable[RouteServer], table: Sequence[Route]) -> None:
        """These are served from now on, of the table's routes."""
        before, self._servers = self._servers, {}
        for server in before.values():
            if self in server.shared:
                server.shared.remove(self)
        for server in servers:
            if server.route.hosts and server.main is None and self.reaches(server.route):
                server.shared.append(self)
                self._servers.update(dict.fromkeys(server.route.hosts, server))
        self._spelled.clear()
        for server in before.values():
            server.check_ended()

    def reaches(self, route: Route) -> bool:
        """Whether a route with hosts is one of those that are reached here."""
        return not route.internal

    def why_not(self, server: RouteServer, request: RequestHead) -> GatewayError | None:
        """Why the route is not for this caller; None = it is."""
        return None

    def exchange(self, caller: Caller, request: RequestHead) -> Exchange:
        server = self._server_at(request.host)
        if server is None:
            host = request.host[:100].decode("latin-1")
            error: GatewayError | None = UnknownHost(
                f"No deployment is called {host!r} here; call it by the host name in its URL."
            )
        else:
            error = self.why_not(server, request)
            if error is None:
                return server.exchange(caller, request)
        exchange = Exchange(caller, self.context, request)
        exchange.refused = error
        return exchange

    def leave_ended(self, exchange: Exchange) -> None:
        server = self._server_at(exchange.request.host)
        if server is not None and exchange.context is not self.context:
            server.leave_ended(exchange)

    def check_ended(self) -> None:
        super().check_ended()
        for server in self._servers.values():
            server.check_ended()

    def _server_at(self, host: bytes) -> RouteServer | None:
        server = self._spelled.get(host)
        if server is None:
            server = self._servers.get(host_of(host.decode("latin-1")))
            if server is not None:
                if len(self._spelled) >= SPELLINGS:
                    self._spelled.clear()
                self._spelled[host] = server
        return server

    def _tell(self, change: Change) -> None:
        """Its state is part of that of the routes that are reached here."""
        for server in self._servers.values():
            server.dispatcher.changed(change)
