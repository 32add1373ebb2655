"""A Unix socket to which other gateways of the machine send packets, and descriptors with them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

PACKET_BYTES = 4096
"""The longest that is sent."""


class PacketListener:
    """Listens at a path that only this user may open."""

    def __init__(self, path: Path, came: Callable[[socket.socket], None]) -> None:
        """`came` is given each new connection; it does not block."""
        self._path = path
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
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            self._came(connection)
