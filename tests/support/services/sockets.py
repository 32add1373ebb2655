"""A service whose WebSockets do not look whether their callers are there; callers that vanish."""

from __future__ import annotations

import asyncio
import socket
import struct
from urllib.parse import urlsplit

from tests.support.services.bentos import IMAGE

DEAF = (
    IMAGE
    + """
from starlette.routing import WebSocketRoute

try:  # in the replica; the laptop that builds it may do without
    from fastapi import FastAPI
except ImportError:
    from starlette.applications import Starlette as FastAPI


async def sleeps(websocket) -> None:
    await websocket.accept()
    while True:
        await asyncio.sleep(1)


async def waits(websocket) -> None:
    await websocket.accept()
    await asyncio.Event().wait()


async def echoes(websocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text.upper())


ROUTES = [WebSocketRoute(f"/{handler.__name__}", handler) for handler in (sleeps, waits, echoes)]


@bentoml.asgi_app(FastAPI(routes=ROUTES), path="/ws")
@bentoml.service(image=image, traffic={"concurrency": 2})
class Deaf:
    @bentoml.api
    async def greet(self, name: str) -> str:
        return f"hello {name}"
"""
)
NEVER_RETURN = ("sleeps", "waits")
HANDSHAKE_S = 11.0
"""For as long as a caller may wait behind two that have gone."""


class Visitor:
    """A caller of a WebSocket that may vanish."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.handshake_s = 0.0

    @classmethod
    async def of(cls, url: str, handler: str) -> Visitor:
        """One that has had its handshake. Raises ConnectionError where it was refused."""
        began = asyncio.get_running_loop().time()
        where = urlsplit(url)
        visitor = cls(*await asyncio.open_connection(where.hostname, where.port))
        visitor._writer.write(
            f"GET /ws/{handler} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        head = await visitor._reader.readuntil(b"\r\n\r\n")
        visitor.handshake_s = asyncio.get_running_loop().time() - began
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(head.decode())
        return visitor

    def vanish(self, *, reset: bool) -> None:
        """Ends the connection without a close frame; `reset`: by a reset."""
        if reset:
            wire = self._writer.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
