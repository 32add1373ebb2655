"""A gateway that tests ask and whose replicas they play, with the callers of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route, RouteTable
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.sources.report_schedule import ReportSchedule
from tests.support.gateway.backends import Backend
from tests.support.gateway.callers import Answer, Caller
from tests.support.patience import until
from tests.support.ports import free_port

LIMITS = Limits(linger_s=0.1, ready_hold_s=0.4, hosts=("model.test",))


class Kitchen:
    """A gateway with one route to one backend, and the callers of a test."""

    def __init__(self) -> None:
        self.reports = ReportSchedule()
        self.gateway = Gateway(LIMITS, on_change=self.reports.changed)
        self.backend = Backend()
        self.route = Route("acme/echo", "127.0.0.1", free_port())
        self._callers: list[Caller] = []

    @property
    def server(self) -> RouteServer:
        server = self.gateway.server(self.route.name)
        assert server is not None
        return server

    async def open(self) -> None:
        await self.backend.start()
        await self.serve()

    async def serve(self, **changes: Any) -> None:
        """Applies the next table; without `replicas` the route keeps the ones it has."""
        self.route = replace(self.route, **changes)
        await self.gateway.apply(RouteTable(self.gateway.version + 1, (self.route,)))

    def limit(self, **limits: Any) -> None:
        """Other limits for the connections that follow."""
        self.server.dispatcher.limits = replace(self.server.dispatcher.limits, **limits)

    def replica(
        self, concurrency: int = 1, *, draining: bool = False, worker: bool = False
    ) -> ReplicaRoute:
        return ReplicaRoute("r1", self.backend.address, concurrency, draining, worker=worker)

    async def wake(self, concurrency: int = 1, *, worker: bool = False) -> None:
        await self.serve(replicas=(self.replica(concurrency, worker=worker),))

    async def sleep(self) -> None:
        await self.serve(replicas=())

    async def caller(self, port: int | None = None) -> Caller:
        """A caller of the route, or of another one's port."""
        return self.keep(await Caller.to(port or self.route.port))

    async def send(self, target: str, **request: Any) -> Caller:
        """A caller of the route that has sent this request."""
        caller = await self.caller()
        caller.send(target, **request)
        return caller

    def keep(self, caller: Caller) -> Caller:
        """The caller leaves at the end, if it has not."""
        self._callers.append(caller)
        return caller

    async def ask(self, target: str, **request: Any) -> Answer:
        return await (await self.caller()).ask(target, **request)

    async def close(self) -> None:
        """Ends everything; no place, slot or connection may be left over."""
        self.backend.gate.set()
        for caller in self._callers:
            caller.leave()
        await until(lambda: all(server.queue.idle for server in self.gateway.servers))
        for server in self.gateway.servers:
            assert server.queue.in_flight == 0
            assert server.queue.queued_bytes == 0
            assert not [r.id for r in server.queue.replicas if r.taken]
        await self.gateway.close(1)
        await self.backend.stop()
