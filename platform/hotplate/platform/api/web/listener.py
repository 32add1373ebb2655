"""The HTTP server in front of an application, with limits on what its callers may hold.

A `connection` gives up heads and bodies that come too slowly and closes what is idle, and there are
at most so many at once. `requests` reads what handlers need of a request and refuses
the rest with a path and a sentence; `http_errors` makes of an error its status and JSON.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket

from aiohttp import web

from hotplate.machine.address import OTHER_LOOPBACK
from hotplate.platform.api.web.connection import ApiConnection, ConnectionLimits

log = logging.getLogger("hotplate.api")

GRACE_S = 3.0
"""How long calls may go on at the end; an upload that is cut is sent again."""
WAITING = 128
"""Connections that the kernel keeps until they are accepted."""


class ApiListener:
    """Serves one application on one address."""

    def __init__(self, app: web.Application, limits: ConnectionLimits | None = None) -> None:
        self._limits = limits or ConnectionLimits()
        self._runner = web.AppRunner(app, shutdown_timeout=GRACE_S)
        self._servers: list[asyncio.Server] = []
        self._replaced: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> int:
        """Listens, at the other loopback address too where it can; returns the port, the system's
        choice for 0. Raises OSError."""
        await self._runner.setup()
        await self._listen(host or None, port)
        bound: int = self._servers[0].sockets[0].getsockname()[1]
        if other := OTHER_LOOPBACK.get(host):
            try:
                await self._listen(other, bound)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    log.warning("another process listens on %s:%s", other, bound)
        return bound

    async def switch_to(self, app: web.Application) -> None:
        """Serve another application from the next connection on; calls of the one before have
        `GRACE_S` to end."""
        runner = web.AppRunner(app, shutdown_timeout=GRACE_S)
        await runner.setup()
        before, self._runner = self._runner, runner
        self._replaced.append(asyncio.create_task(before.cleanup()))

    async def stop(self) -> None:
        """Accepts nothing more."""
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Ends every connection, in order, and the application."""
        await self.stop()
        await asyncio.gather(self._runner.cleanup(), *self._replaced)

    async def _listen(self, host: str | None, port: int) -> None:
        loop = asyncio.get_running_loop()
        # asyncio accepts up to `backlog` connections in a row, and goes on where no descriptor is
        # left: each failure is logged and tried again a second later, with as many failures of its
        # own. So it accepts one at a time, and the kernel's queue is made longer behind its back.
        server = await loop.create_server(self._admit, host, port, reuse_address=True, backlog=1)
        for each in server.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as listening:
                listening.listen(WAITING)
        self._servers.append(server)

    def _admit(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "it is set up before it listens"
        limits = self._limits
        if len(server.connections) >= limits.connections:
            return _Full(limits.connections)
        return ApiConnection(server, limits)


class _Full(asyncio.Protocol):
    """A connection too many."""

    def __init__(self, connections: int) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        message = f"{self._connections} connections are open; close some or come back later"
        body = json.dumps({"error": {"code": "too_many_connections", "message": message}}).encode()
        transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nRetry-After: 5\r\nConnection: close\r\n\r\n%b"
            % (len(body), body)
        )
        transport.close()
