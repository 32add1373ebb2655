"""The operator's listener: is it alive, what does it count, what waits on a route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from hotplate.serving.gateway.gateway import Gateway
from hotplate.serving.gateway.metrics import exposition, registry_of
from hotplate.serving.gateway.route_server import RouteServer


class Admin:
    """`GET /healthz`, `/metrics` and `/deployments/<name>/queue`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.source: Callable[[], dict[str, Any]] = dict
        """Tells of where the routes come from."""
        self._address = ("", 0)
        self._port = 0
        self._registry = registry_of(lambda: gateway.servers)
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/deployments/{name:.+}/queue", self._queue)
        self._runner = web.AppRunner(app, access_log=None)

    async def listen(self, host: str, port: int) -> int:
        """Listens there and nowhere else; returns the port, which is the system's choice for 0.

        Raises OSError, and then goes on where it was.
        """
        if self._address == (host, port):
            return self._port
        if self._runner.server is None:
            await self._runner.setup()
        before = list(self._runner.sites)
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        for old in before:
            await old.stop()
        self._address = (host, port)
        self._port = self._runner.addresses[0][1]
        return self._port

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "status": "ok",
                "version": self._gateway.version,
                **self.source(),
                "errors": {s.route.name: s.error for s in self._gateway.servers if s.error},
            }
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._registry),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _queue(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        server = self._gateway.server(name)
        if server is None:
            message = f"No deployment {name!r} is served here."
            error = {"code": "unknown_deployment", "message": message}
            return web.json_response({"error": error}, status=404)
        return web.json_response(describe(server, asyncio.get_running_loop().time()))


def describe(server: RouteServer, now: float) -> dict[str, Any]:
    """A route's queue as an operator wants to see it; times in seconds."""
    queue = server.queue
    return {
        "route": server.route.name,
        "error": server.error,
        "queued": queue.queued,
        "queued_bytes": queue.queued_bytes,
        "in_flight": queue.in_flight,
        "slots": queue.slots,
        "service_s": queue.service_s,
        "waited_s": [round(now - ticket.arrived_at, 3) for ticket in queue.waiting],
        "replicas": [
            {
                "id": replica.id,
                "concurrency": replica.concurrency,
                "taken": replica.taken,
                "draining": replica.draining,
                "out": replica.out_until > now,
            }
            for replica in queue.replicas
        ],
    }
