"""Listening sockets that a retiring gateway hands over to another one.

The close of a listening socket resets the connections that wait to be accepted on it; so the
descriptor itself is handed over, and the other gateway accepts them. There is one packet for each
socket, the deployment's name with the descriptor; the response says whether it was taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from hotplate.serving.gateway.sockets.handshake import prove_ourselves
from hotplate.serving.gateway.sockets.packets import PACKET_BYTES, PacketListener
from hotplate.serving.gateway.sockets.proof import Proof

log = logging.getLogger(__name__)

ANSWER_S = 5.0
TAKEN, REFUSED = b"taken", b"refused"


class Inbox:
    """The socket at which a gateway takes listening sockets from others."""

    def __init__(
        self, path: Path, proof: Proof, take: Callable[[str, socket.socket], Awaitable[bool]]
    ) -> None:
        """`take` gets a deployment's name and a socket, and returns whether it can use it."""
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._listener = PacketListener(path, proof, self._on_connection)
        self._open: set[socket.socket] = set()
        self._taking: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listens. Raises OSError."""
        self._listener.open()

    def close(self) -> None:
        self._listener.close()
        for connection in list(self._open):
            self._end(connection)

    def _on_connection(self, connection: socket.socket) -> None:
        self._open.add(connection)
        self._loop.add_reader(connection, self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        try:
            name, descriptors, _, _ = socket.recv_fds(connection, PACKET_BYTES, 1)
        except OSError:
            name, descriptors = b"", []
        if not name:
            self._end(connection)
            return
        for descriptor in descriptors:
            given = socket.socket(fileno=descriptor)
            task = self._loop.create_task(self._give(connection, name.decode(), given))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _give(self, connection: socket.socket, name: str, given: socket.socket) -> None:
        taken = await self._take(name, given)
        if not taken:
            given.close()
        if connection in self._open:
            connection.send(TAKEN if taken else REFUSED)

    def _end(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        self._loop.remove_reader(connection)
        connection.close()


def hand_over(path: Path, proof: Proof, listening: Iterable[tuple[str, int]]) -> None:
    """Gives another gateway listening sockets, by deployment and descriptor. It blocks. Those that
    are not taken are only logged; connections that wait on them will be reset."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(os.fspath(path))
            prove_ourselves(connection, path.name, proof)
            for name, descriptor in listening:
                socket.send_fds(connection, [name.encode()], [descriptor])
                if connection.recv(PACKET_BYTES) != TAKEN:
                    log.warning("%s: the other gateway has no use for its socket", name)
    except OSError as error:
        log.warning("listening sockets could not be handed over to %s: %s", path, error)
