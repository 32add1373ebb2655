"""The address at which a route's callers arrive; it is tried again while it is taken."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from hotplate.machine.address import OTHER_LOOPBACK
from hotplate.serving.gateway.callers.certificate import Certificate

log = logging.getLogger(__name__)

BACKLOG = 2048
Peers = Callable[[], Sequence[str]]
"""Returns the other gateways that live."""

PEER_S = 0.1
RETRY_S = 1.0
"""How often an address that is taken is tried again, and a certificate's files are checked."""
HANDSHAKE_S = 10.0
"""Time for the TLS handshake."""
SHUTDOWN_S = 2.0
"""Time for the end of a TLS connection."""


class RouteListener:
    """Listens for one route. `changed` is called when `error` has changed."""

    def __init__(
        self,
        name: str,
        new_connection: Callable[[], asyncio.Protocol],
        changed: Callable[[], None],
        peers: Peers | None = None,
    ) -> None:
        """With `peers` other gateways may listen there too. While there are none the address has to
        be free, so that it is never shared with another program by mistake."""
        self.error = ""
        """Why it is not listening, or not with its newest certificate; empty = it is, or has no
        address."""
        self._name = name
        self._new_connection = new_connection
        self._changed = changed
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._address = ("", 0)
        self._certificate: Certificate | None = None
        self._server: asyncio.Server | None = None
        self._more: list[asyncio.Server] = []
        """Servers on the other loopback address, and on sockets of gateways that have ended."""
        self._retry: asyncio.TimerHandle | None = None
        self._trying: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int, certificate: str = "", key: str = "") -> None:
        """Listens there and nowhere else; where it cannot, `error` says why and it tries on.

        `certificate` and `key` are PEM files, followed while they change; empty = no TLS.
        """
        files = (certificate, key)
        same = (self._certificate.files if self._certificate else ("", "")) == files
        if same and self._address == (host, port) and self._server is not None:
            return
        self._stop_listening()
        if not same:
            self._certificate = Certificate(certificate, key) if certificate else None
        self._address = (host, port)
        if port:
            await self._try()

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors of the sockets on which it listens."""
        # uvloop has a list of sockets where asyncio's types say a tuple; compiled code checks that.
        servers: list[Any] = [self._server, *self._more] if self._server is not None else []
        return [sock.fileno() for server in servers for sock in server.sockets]

    async def adopt(self, listening: socket.socket) -> bool:
        """Listens on another gateway's socket too; returns whether it is one of this route's."""
        host, port = listening.getsockname()[:2]
        if self._server is None or port != self._address[1]:
            return False
        listening.setblocking(False)
        server = await self._loop.create_server(
            self._new_connection, sock=listening, backlog=BACKLOG, **self._tls()
        )
        self._more.append(server)
        log.info("%s: another gateway's socket for %s:%s was taken over", self._name, host, port)
        return True

    def close(self) -> None:
        """Accepts no more connections, and no longer tries to listen."""
        self._stop_listening()
        self._set_error("")

    def _stop_listening(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._server is not None:
            self._server.close()
            self._server = None
        for server in self._more:
            server.close()
        self._more.clear()
        self._address = ("", 0)

    async def _try(self) -> None:
        host, port = address = self._address
        if self._certificate is not None:
            self._certificate.refresh()
            if self._certificate.context is None:
                self._set_error(f"{self._certificate.error}; it is tried again every second")
                self._retry = self._loop.call_later(RETRY_S, self._retry_now)
                return
        try:
            server = await self._listen_at(host, port)
            other = await self._on_other_loopback(host, port)
        except OSError as error:
            if address == self._address:
                why = error.strerror or str(error)
                self._set_error(
                    f"{host}:{port} cannot be listened on: {why}; it is tried again every second"
                )
                self._retry = self._loop.call_later(RETRY_S, self._retry_now)
            return
        if address != self._address:  # it was closed, or moved, meanwhile
            for each in filter(None, (server, other)):
                each.close()
            return
        self._server = server
        if other is not None:
            self._more.append(other)
        if self._certificate is None:
            self._set_error("")
        else:
            self._look_at(self._certificate)

    def _look_at(self, certificate: Certificate) -> None:
        """Follows the certificate's files while it listens."""
        certificate.refresh()
        self._set_error(certificate.error)
        self._retry = self._loop.call_later(RETRY_S, self._look_at, certificate)

    async def _listen_at(self, host: str, port: int) -> asyncio.Server:
        """Listens there, with `SO_REUSEPORT` where there are peers. Raises OSError."""
        peers = self._peers
        try:
            if peers is not None and not peers():
                (await self._bind(host, port, shared=False)).close()
            server = await self._bind(host, port, shared=peers is not None)
        except OSError:
            if peers is None or not peers():
                raise
            await asyncio.sleep(PEER_S)  # one that starts too sees first whether it is free
            server = await self._bind(host, port, shared=True)
        await server.start_serving()
        return server

    async def _on_other_loopback(self, host: str, port: int) -> asyncio.Server | None:
        """None if there is no other loopback address, or another program listens there."""
        other = OTHER_LOOPBACK.get(host)
        try:
            return await self._listen_at(other, port) if other else None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                log.warning("%s: another program listens on %s:%s", self._name, other, port)
            return None

    async def _bind(self, host: str, port: int, *, shared: bool) -> asyncio.Server:
        return await self._loop.create_server(
            self._new_connection,
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            reuse_port=shared,
            start_serving=False,
            **self._tls(),
        )

    def _tls(self) -> dict[str, Any]:
        if self._certificate is None:
            return {}
        return {
            "ssl": self._certificate.context,
            "ssl_handshake_timeout": HANDSHAKE_S,
            "ssl_shutdown_timeout": SHUTDOWN_S,
        }

    def _retry_now(self) -> None:
        self._retry = None
        self._trying = self._loop.create_task(self._try())

    def _set_error(self, error: str) -> None:
        if error == self.error:
            return
        if error:
            log.warning("%s: %s", self._name, error)
        elif self._server is not None:
            log.info("%s: %s:%s is listened on now", self._name, *self._address)
        self.error = error
        self._changed()
