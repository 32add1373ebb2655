"""The agent's connection to the file view's daemon: packets of JSON, some with a descriptor.

daemon → {"serving": true, "passthrough": bool} once, or {"refused": "<why>"}
daemon → {"urls": true}
agent  → {"files": [[url, size, version]], "gone": [url], "last": bool}: the changes
daemon → {"open": number, "tree": manifest, "path": path}; no tree: the path is a version
agent  → {"lease": number, "size": n, "complete": bool, "done": [chunks]} + a descriptor
agent  → {"lease": number, "done": [chunks]} as they are verified
agent  → {"lease": number, "error": sentence, "code": code} if it cannot be brought
daemon → {"lease": number, "want": [chunks]}: these first; {"close": number}
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from hotplate.cache.file_view.daemon import PACKET_BYTES


class PacketLink:
    """Packets of JSON, each with a descriptor or none."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        """The next packet; None when the other side has gone."""
        try:
            data = await self._loop.sock_recv(self._socket, PACKET_BYTES)
        except ConnectionError:
            return None
        message: dict[str, Any] | None = json.loads(data) if data else None
        return message

    async def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Raises OSError when the other side has gone."""
        data = json.dumps(message).encode()
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._socket, [data], [] if fd is None else [fd])
                    return
                except BlockingIOError:
                    await self._writable()

    async def _writable(self) -> None:
        writable = self._loop.create_future()
        self._loop.add_writer(self._socket, _set, writable)
        try:
            await writable
        finally:
            self._loop.remove_writer(self._socket)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
