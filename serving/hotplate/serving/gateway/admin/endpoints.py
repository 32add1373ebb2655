"""The operator's listener: health, metrics, and the queue of a route."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Middleware

from hotplate.machine.access.bearer import TokenCheck
from hotplate.machine.access.metrics_check import PATH, MetricsCheck
from hotplate.machine.access.metrics_page import answer
from hotplate.machine.access.middleware import Handler, refuse_cross_site
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.machine.address import Address
from hotplate.serving.gateway.admin.metrics import registry_of
from hotplate.serving.gateway.admin.queue_page import describe
from hotplate.serving.gateway.all_routes import Gateway
from hotplate.serving.gateway.compiled import is_used
from hotplate.serving.gateway.fleet.peer_queries import ask_gateway

log = logging.getLogger(__name__)

ANY = "127.0.0.1:0"
"""Any free port of this machine."""
TURN_S = 1.0
"""How often an address that another gateway has is tried."""


class Admin:
    """`GET /healthz`, `/metrics` and `/deployments/<name>/queue`."""

    def __init__(
        self,
        gateway: Gateway,
        describe_source: Callable[[], dict[str, Any]],
        token: str = "",
        metrics_token: str | None = "",
    ) -> None:
        """`describe_source` says where the routes come from, for `/healthz`. Requests need `token`,
        except to ask whether the gateway is alive; empty = they need none. `metrics_token` is a
        second one for the metrics, beside those of the gateway's readers; None = metrics need
        none."""
        self._check = TokenCheck(token)
        self._gateway = gateway
        self._metrics_check = MetricsCheck(token, metrics_token, gateway.readers)
        self._describe_source = describe_source
        self._address = ("", 0)
        self._port = 0
        self._turn: asyncio.Task[None] | None = None
        """Waits until its address is free."""
        self._registry = registry_of(lambda: gateway.servers)
        self._runner = web.AppRunner(self._app(self._admit), access_log=None)
        self._private = web.AppRunner(self._app(), access_log=None)
        """For other gateways, which have proven that they are ours."""

    def _app(self, *checks: Middleware) -> web.Application:
        app = web.Application(middlewares=checks)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get(PATH, self._metrics)
        app.router.add_get("/deployments/{name:.+}/queue", self._queue)
        return app

    async def listen(self, address: str, in_turn: Callable[[], object] = bool) -> int:
        """Listens at `host:port` and nowhere else; returns the port, the system's choice for 0.
        `in_turn` says whether another gateway may have the address; then this one listens somewhere
        else on this machine until the address is free. Raises OSError, and then goes on where it
        was."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        try:
            return await self._listen(*Address.parse(address))
        except OSError as error:
            if not in_turn():
                raise
            log.info("%s is another gateway's (%s); tried until it ends", address, error.strerror)
        self._turn = asyncio.create_task(self._await_turn(address))
        return await self._listen(*Address.parse(ANY))

    async def _await_turn(self, address: str) -> None:
        while True:
            await asyncio.sleep(TURN_S)
            with suppress(OSError):
                await self._listen(*Address.parse(address))
                log.info("operators ask at %s from now on", address)
                return

    async def _listen(self, host: str, port: int) -> int:
        if self._address == (host, port):
            return self._port
        if self._runner.server is None:
            await self._runner.setup()
            await self._private.setup()
        before = list(self._runner.sites)
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        for old in before:
            await old.stop()
        self._address = (host, port)
        self._port = self._runner.addresses[0][1]
        return self._port

    def protocol(self) -> asyncio.Protocol:
        """The protocol for another gateway's connection."""
        server = self._private.server
        assert server is not None, "it listens before it is asked"
        return server()

    async def close(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
        await self._runner.cleanup()
        await self._private.cleanup()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        own = OwnHosts(self._address[0], self._gateway.limits.hosts)
        return await refuse_cross_site(own)(request, partial(self._authorize, handler))

    async def _authorize(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Checks the token. Without it only the health is shown, and nothing else."""
        if request.path in (PATH, "/readyz") or self._check.admits(request):
            return await handler(request)
        if request.path == "/healthz":
            return web.json_response({"status": "ok"})
        message = "operators' requests need the cluster's token: 'Authorization: Bearer <token>'."
        error = {"code": "unauthorized", "message": message}
        return web.json_response({"error": error}, status=401)

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "status": "ok",
                "version": self._gateway.version,
                "compiled": is_used(),
                **self._describe_source(),
                **self._fleet(),
                "errors": {s.route.name: s.error for s in self._gateway.servers if s.error},
            }
        )

    async def _readyz(self, request: web.Request) -> web.Response:
        """Whether callers may be led here; it shows nothing else, and needs no token."""
        ready = self._gateway.ready
        status = {"status": "ok" if ready else "no routes yet, or about to end"}
        return web.json_response(status, status=200 if ready else 503)

    def _fleet(self) -> dict[str, Any]:
        fleet = self._gateway.fleet
        if fleet is None:
            return {}
        servers = [server.route.name for server in self._gateway.servers]
        owners = {name: self._gateway.owner(name) for name in servers}
        return {"gateway": fleet.id, "peers": list(fleet.peers), "owners": owners}

    async def _metrics(self, request: web.Request) -> web.Response:
        return answer(request, self._metrics_check, self._registry)

    async def _queue(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        server = self._gateway.server(name)
        if server is None:
            message = f"No deployment {name!r} is served here."
            error = {"code": "unknown_deployment", "message": message}
            return web.json_response({"error": error}, status=404)
        fleet, owner = self._gateway.fleet, self._gateway.owner(name)
        if fleet is not None and owner not in ("", fleet.id):
            with suppress(OSError, ValueError):
                path = f"/deployments/{quote(name)}/queue"
                return web.json_response(
                    await ask_gateway(fleet.address_of(owner), fleet.proof, path)
                )
        now = asyncio.get_running_loop().time()
        return web.json_response(
            describe(name, server.error, server.queue, now, server.route.slots_from)
        )
