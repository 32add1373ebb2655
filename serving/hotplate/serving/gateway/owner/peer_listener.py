"""The private listener of a gateway: takes the other gateways' requests for what it owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

from hotplate.serving.gateway.callers.downstream import as_protocol
from hotplate.serving.gateway.route_server import RouteServer
from hotplate.serving.gateway.sockets.proof import (
    NUMBER_BYTES,
    PROOF_BYTES,
    ListeningSide,
    Proof,
    check_user,
)

log = logging.getLogger(__name__)

NAME_BYTES = 4096


class PeerListener:
    """A socket in the file system, for this user only."""

    def __init__(
        self,
        path: Path,
        proof: Proof,
        server: Callable[[str], RouteServer | None],
        operator: Callable[[], asyncio.Protocol],
    ) -> None:
        """`operator` makes the protocol of a connection that names no deployment."""
        self._path = path
        self._proof = proof
        self._server_of = server
        self._operator = operator
        self._listener: asyncio.Server | None = None

    async def open(self) -> None:
        """Listens. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(
            lambda: Opening(ListeningSide(self._proof, self._path.name), self._protocol),
            str(self._path),
            backlog=1024,
        )
        self._path.chmod(0o600)

    def _protocol(self, name: str) -> asyncio.Protocol | None:
        if not name:
            return self._operator()
        server = self._server_of(name)
        return None if server is None else as_protocol(server.callers.new(relayed=True))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        try:
            check_user(transport.get_extra_info("socket"))
        except OSError as error:
            self._turn_away(error)

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
