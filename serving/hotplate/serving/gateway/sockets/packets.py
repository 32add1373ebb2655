"""A Unix socket to which other gateways of the machine send packets, and descriptors with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from hotplate.serving.gateway.sockets.proof import Listening, Proof, check_user

log = logging.getLogger(__name__)

PACKET_BYTES = 4096
"""The longest that is sent."""


class PacketListener:
    """Listens at a path that only this user may open."""

    def __init__(self, path: Path, proof: Proof, came: Callable[[socket.socket], None]) -> None:
        """`came` is given each new connection, once the other side has shown that it is a gateway
        of ours; it does not block."""
        self._path = path
        self._proof = proof
        self._strangers: set[socket.socket] = set()
        """They have not shown it yet."""
        self._came = came
        self._loop = asyncio.get_running_loop()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def open(self) -> None:
        """Raises OSError."""
        self._listening.bind(str(self._path))
        self._path.chmod(0o600)
        self._listening.listen()
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        for connection in list(self._strangers):
            self._turn_away(connection)
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            self._strangers.add(connection)
            meets = Listening(self._proof, self._path.name)
            self._loop.add_reader(connection, self._hear, connection, meets, False)

    def _hear(self, connection: socket.socket, meets: Listening, answered: bool) -> None:
        """One packet of who is to show that it is a gateway: its number, then its proof."""
        try:
            packet = connection.recv(PACKET_BYTES)
            if answered:
                meets.check(packet)
            else:
                check_user(connection)
                connection.send(meets.answer(packet))
        except BlockingIOError:
            return
        except OSError as error:
            if isinstance(error, PermissionError):
                log.warning("%s: %s", self._path.name, error)
            self._turn_away(connection)
            return
        if answered:
            self._strangers.discard(connection)
            self._loop.remove_reader(connection)
            self._came(connection)
        else:
            self._loop.add_reader(connection, self._hear, connection, meets, True)

    def _turn_away(self, connection: socket.socket) -> None:
        self._strangers.discard(connection)
        self._loop.remove_reader(connection)
        connection.close()
