"""A server that costs next to nothing itself, for stand-ins for replicas."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import httptools

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"


class CallersConnection(asyncio.Protocol, ABC):
    """One caller's: one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._body = b""
        self._transport: asyncio.Transport

    @abstractmethod
    def asked(self, target: bytes, body: bytes) -> None:
        """A request has come."""

    def answer(self, body: bytes, content_type: bytes) -> None:
        self.send(ANSWER % (content_type, len(body), body))

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target = url
        self._body = b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.asked(self._target, self._body)


async def serve(connection: Callable[[], CallersConnection], port: int) -> None:
    """Prints its port as JSON when it listens; 0 = any."""
    server = await asyncio.get_running_loop().create_server(
        connection, "127.0.0.1", port, backlog=2048, reuse_address=True
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()
