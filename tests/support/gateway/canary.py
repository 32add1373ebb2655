"""A deployment with versions beside `main`, each with a backend of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route, RouteTable
from hotplate.serving.gateway.protocol.version_mark import VERSION
from hotplate.serving.gateway.protocol.version_shares import MAIN, VersionShare, laid_out
from hotplate.serving.gateway.route_server import RouteServer
from tests.support.gateway.backends import Backend
from tests.support.gateway.kitchen import Kitchen

SLOTS = 4


class Canary:
    """A kitchen's route with other versions beside its own backend."""

    def __init__(self, kitchen: Kitchen) -> None:
        self.kitchen = kitchen
        self.backends = {MAIN: kitchen.backend}
        self.versions: tuple[VersionShare, ...] = ()
        self.routes: dict[str, Route] = {}
        """The routes of the versions."""

    async def add(self, *versions: str) -> None:
        """Starts a backend for each of these versions."""
        for version in versions:
            self.backends[version] = Backend()
            await self.backends[version].start()
            name = self.kitchen.route.name + VERSION + version
            self.routes[version] = Route(name, "", 0, replicas=(self.replica(version),))

    def replica(self, version: str, **changes: Any) -> ReplicaRoute:
        address = self.backends[version].address
        return replace(ReplicaRoute(version, address, SLOTS, version=f"{version}@1"), **changes)

    async def serve(self, weights: Mapping[str, float] | None = None, **changes: Any) -> None:
        """The next table: these weights, and changes of the public route. A version without a
        weight is not in it."""
        if weights is not None:
            before = {version.id: version for version in self.versions}
            self.versions = laid_out(
                [
                    replace(before.get(v, VersionShare(v, self.routes[v].name, 0)), weight=weight)
                    for v, weight in weights.items()
                ]
            )
        if not self.kitchen.route.replicas:
            changes = {"replicas": (self.replica(MAIN),), **changes}
        self.kitchen.route = replace(self.kitchen.route, versions=self.versions, **changes)
        routes = [self.kitchen.route, *(self.routes[v.id] for v in self.versions)]
        gateway = self.kitchen.gateway
        await gateway.apply(RouteTable(gateway.version + 1, tuple(routes)))

    async def change(self, version: str, **changes: Any) -> None:
        """The same table with another route of a version."""
        self.routes[version] = replace(self.routes[version], **changes)
        await self.serve()

    def server(self, version: str) -> RouteServer:
        server = self.kitchen.gateway.server(self.routes[version].name)
        assert server is not None
        return server

    @property
    def asked(self) -> Counter[str]:
        """How many requests the backend of each version has had; absent = none."""
        return +Counter({name: len(backend.requests) for name, backend in self.backends.items()})

    async def close(self) -> None:
        for name, backend in self.backends.items():
            backend.gate.set()
            if name != MAIN:
                await backend.stop()
