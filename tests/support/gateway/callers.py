"""A caller that speaks HTTP/1.1 byte by byte, and a way to wait for things."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    """One answer as it arrived."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class Caller:
    """One connection to a gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.host = "model.test"
        self.trailers: list[bytes] = []
        """Of the last answer in chunks."""

    @classmethod
    async def to(cls, port: int, host: str = "127.0.0.1") -> Caller:
        return cls(*await asyncio.open_connection(host, port))

    def send(
        self, target: str, *, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> None:
        """Sends a request; `x_y="v"` is the header `x-y: v`."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send_raw("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        """The next answer's status and headers."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.rstrip("\r\n").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), headers

    async def chunk(self) -> bytes:
        """The next chunk; empty = the last."""
        size = int(await self.reader.readline(), 16)
        if not size:
            self.trailers = []
            while line := (await self.reader.readuntil(b"\r\n"))[:-2]:
                self.trailers.append(line)
            return b""
        data = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        return data

    async def answer(self, *, to_head: bool = False) -> Answer:
        """The next answer, whole."""
        status, headers = await self.head()
        if to_head or status in (204, 304):
            return Answer(status, headers, b"")
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        elif "transfer-encoding" in headers:
            body = b""
            while data := await self.chunk():
                body += data
        else:
            body = await self.reader.read()
        return Answer(status, headers, body)

    async def ask(self, target: str, **request: Any) -> Answer:
        self.send(target, **request)
        return await self.answer()

    async def ended(self) -> bool:
        """Whether the gateway has closed the connection, with nothing more to read."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def leave(self, *, reset: bool = False) -> None:
        """Closes the connection; `reset`: as the kernel does for a process with unread data."""
        if reset:
            wire = self.writer.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
