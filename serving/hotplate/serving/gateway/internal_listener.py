"""The address at which services of a bento call each other: for replicas of their deployment only.

A replica is known by the address from which it calls. It shows its revision's secret beside that
(`admission/internal_callers.py`), as at an address of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hotplate.machine.address import Address
from hotplate.machine.unix_address import unix_path
from hotplate.serving.gateway.callers.route_listener import Peers
from hotplate.serving.gateway.errors import GatewayError, NotYours
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import Route
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.shared_listener import SharedListener
from hotplate.serving.gateway.telemetry.access_log import AccessLog


class InternalListener(SharedListener):
    """Serves the internal routes that have `hosts`."""

    def __init__(
        self, route: Route, limits: Limits, peers: Peers | None, access_log: AccessLog | None
    ) -> None:
        super().__init__(route, limits, peers, access_log)
        self._replicas: Mapping[str, set[bytes]] = {}

    def share(self, servers: Iterable[RouteServer], table: Sequence[Route]) -> None:
        self._replicas = replicas_of(table)
        super().share(servers, table)

    def reaches(self, route: Route) -> bool:
        return route.internal

    def why_not(self, server: RouteServer, request: RequestHead) -> GatewayError | None:
        deployment = deployment_of(server.route)
        if request.peer in self._replicas.get(deployment, ()):
            return None
        peer = request.peer.decode("latin-1")
        return NotYours(
            f"{server.route.name} is called by replicas of {deployment} only, and {peer} is none."
        )


def deployment_of(route: Route) -> str:
    """`organization/deployment`, of a public route, a version's or a dependency's."""
    return route.name.partition("@")[0].partition(VERSION)[0]


def replicas_of(table: Iterable[Route]) -> Mapping[str, set[bytes]]:
    """By deployment, from which addresses its replicas call, those that start or end included."""
    found: dict[str, set[bytes]] = {}
    for route in table:
        known = found.setdefault(deployment_of(route), set())
        addresses = (*(each.address for each in route.replicas), *route.starting)
        hosts = (Address.parse(each).host for each in addresses if unix_path(each) is None)
        known.update(host.encode() for host in hosts)
    return found
