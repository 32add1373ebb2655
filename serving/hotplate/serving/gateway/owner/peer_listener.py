"""The listener of a gateway for the others: takes their requests for what it owns."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from hotplate.machine.address import Address
from hotplate.machine.dead_peers import keep_alive
from hotplate.serving.gateway.callers.downstream import as_protocol
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.sockets.proof import (
    NETWORK,
    NUMBER_BYTES,
    PROOF_BYTES,
    ListeningSide,
    Proof,
    check_user,
)

log = logging.getLogger(__name__)

NAME_BYTES = 4096
OPENING_S = 5.0
"""Time for the proof and the name."""


class PeerListener:
    """A socket in the file system, for this user only, or an address of the network."""

    def __init__(
        self,
        proof: Proof,
        server: Callable[[str], RouteServer | None],
        others: Mapping[str, Callable[[], asyncio.Protocol]],
    ) -> None:
        """`others` make the protocols of connections that name one of these in place of a
        deployment."""
        self._path: Path | None = None
        self._proof = proof
        self._server_of = server
        self._others = others
        self._listener: asyncio.Server | None = None

    async def open(self, path: Path) -> None:
        """Listens at a socket in the file system. Raises OSError."""
        loop, self._path = asyncio.get_running_loop(), path
        self._listener = await loop.create_unix_server(
            lambda: Opening(ListeningSide(self._proof, path.name), self._protocol),
            str(path),
            backlog=1024,
        )
        os.chmod(path, 0o600)

    async def open_to_network(self, address: Address) -> None:
        """Listens at an address. Raises OSError."""
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: Opening(ListeningSide(self._proof, NETWORK), self._protocol),
            *address,
            backlog=1024,
        )

    def _protocol(self, name: str) -> asyncio.Protocol | None:
        if name in self._others:
            return self._others[name]()
        server = self._server_of(name)
        return None if server is None else as_protocol(server.callers.new(relayed=True))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class Opening(asyncio.Protocol):
    """A connection to the private socket until it has proven that it is a gateway's, and named its
    deployment."""

    def __init__(
        self, side: ListeningSide, protocol: Callable[[str], asyncio.Protocol | None]
    ) -> None:
        self._meets = side
        self._answered = self._proven = False
        self._protocol = protocol
        self._read = b""
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(OPENING_S, self._transport.abort)
        connection = transport.get_extra_info("socket")
        try:
            if connection.family == socket.AF_UNIX:
                check_user(connection)
            else:
                keep_alive(connection)
        except OSError as error:
            self._turn_away(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()

    def data_received(self, data: bytes) -> None:
        self._read += data
        try:
            if not self._proven and not self._prove():
                return
        except PermissionError as error:
            self._turn_away(error)
            return
        name, newline, rest = self._read.partition(b"\n")
        if not newline:
            if len(name) > NAME_BYTES:
                self._transport.abort()
            return
        protocol = self._protocol(name.decode(errors="replace"))
        if protocol is None:
            log.warning("another gateway sent a request for %r, which is not served here", name)
            self._transport.close()
            return
        self._limit.cancel()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def _prove(self) -> bool:
        """Whether the other side has proven that it is a gateway of ours. Raises
        PermissionError."""
        if not self._answered and len(self._read) >= NUMBER_BYTES:
            self._transport.write(self._meets.answer(self._taken(NUMBER_BYTES)))
            self._answered = True
        if self._answered and len(self._read) >= PROOF_BYTES:
            self._meets.check(self._taken(PROOF_BYTES))
            self._proven = True
        return self._proven

    def _taken(self, size: int) -> bytes:
        taken, self._read = self._read[:size], self._read[size:]
        return taken

    def _turn_away(self, error: OSError) -> None:
        log.warning("%s", error)
        self._transport.abort()
