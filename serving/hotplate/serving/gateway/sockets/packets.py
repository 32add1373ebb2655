"""A Unix socket to which other gateways of the machine send packets, and descriptors with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from hotplate.serving.gateway.sockets.proof import ListeningSide, Proof, check_user

log = logging.getLogger(__name__)

PACKET_BYTES = 4096
"""The longest packet."""


class PacketListener:
    """Listens at a path that only this user may open."""

    def __init__(
        self, path: Path, proof: Proof, on_connection: Callable[[socket.socket], None]
    ) -> None:
        """`on_connection` is called with each new connection once the other side has proven that it
        is a gateway of ours; it must not block."""
        self._path = path
        self._proof = proof
        self._unproven: set[socket.socket] = set()
        """Connections that have not proven that."""
        self._on_connection = on_connection
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
        for connection in list(self._unproven):
            self._turn_away(connection)
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            self._unproven.add(connection)
            side = ListeningSide(self._proof, self._path.name)
            self._loop.add_reader(connection, self._receive, connection, side, False)

    def _receive(self, connection: socket.socket, side: ListeningSide, answered: bool) -> None:
        """One packet of an unproven connection: its number, then its proof."""
        try:
            packet = connection.recv(PACKET_BYTES)
            if answered:
                side.check(packet)
            else:
                check_user(connection)
                connection.send(side.answer(packet))
        except BlockingIOError:
            return
        except OSError as error:
            if isinstance(error, PermissionError):
                log.warning("%s: %s", self._path.name, error)
            self._turn_away(connection)
            return
        if answered:
            self._unproven.discard(connection)
            self._loop.remove_reader(connection)
            self._on_connection(connection)
        else:
            self._loop.add_reader(connection, self._receive, connection, side, True)

    def _turn_away(self, connection: socket.socket) -> None:
        self._unproven.discard(connection)
        self._loop.remove_reader(connection)
        connection.close()
