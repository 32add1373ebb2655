"""A replica that a test holds in its hands: real sockets, handlers that go on whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hotplate.machine.unix_address import address_of, listen
from tests.support.ports import free_port


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""


@dataclass
class Connection:
    """What a handler reads from and writes to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    trailers: list[bytes] = field(default_factory=list)
    """Of the last body in chunks."""

    def answer(self, body: bytes = b"ok", status: str = "200 OK", extra: str = "") -> None:
        self.writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body
        )

    def begin_chunks(self, extra: str = "") -> None:
        self.writer.write(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{extra}\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def read_body(self, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" not in headers:
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        self.trailers = []
        while line := (await self.reader.readline()).rstrip(b"\r\n"):
            self.trailers.append(line)
        return body


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
Handler = Callable[[Request, Connection], Awaitable[None]]


class Backend:
    """Counts the handlers that are running. It never notices that a caller has left.

    `/echo` answers the body, `/slow` answers when `gate` is set. `/stream` sends one piece, and
    the rest when `gate` is set; `/half` closes its connection then. `on` adds more. A path in `raw`
    gets its request before the body was read.
    """

    def __init__(self, path: Path | None = None, host: str = "127.0.0.1") -> None:
        """It listens on a Unix socket there, or at `host` on a port of its own."""
        self._host = host
        self.port = free_port()
        self.path = path
        self.running = 0
        self.peak = 0
        """Most handlers that ran at once."""
        self.finished = 0
        self.connections = 0
        """Connections accepted so far."""
        self.requests: list[Request] = []
        self.gate = asyncio.Event()
        self._handlers: dict[str, Handler] = {
            "/echo": _echo,
            "/slow": self._slow,
            "/stream": self._stream,
            "/half": self.half,
        }
        self._below: dict[str, Handler] = {}
        self.raw: set[str] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}" if self.path is None else address_of(self.path)

    @property
    def open(self) -> int:
        """Connections that nobody has ended."""
        return len(self._tasks)

    def on(self, path: str, handler: Handler, *, raw: bool = False) -> None:
        self._handlers[path] = handler
        if raw:
            self.raw.add(path)

    def below(self, prefix: str, handler: Handler) -> None:
        """For all paths that begin so."""
        self._below[prefix] = handler

    def never_ends(self, path: str, first: bytes) -> None:
        """A handler that says this and nothing more, reads nothing and minds no caller: its
        connection ends when the `gate` is set."""

        async def handler(request: Request, connection: Connection) -> None:
            connection.writer.write(first)
            await self.gate.wait()
            connection.writer.close()

        self.on(path, handler)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self.stop()

    async def start(self) -> None:
        """Starts, or starts again on the same port."""
        if self.path is None:
            self._server = await asyncio.start_server(self._accept, self._host, self.port)
        else:
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listen(self.path, 100)
            )

    async def stop(self) -> None:
        """Refuses new connections and drops the old ones."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing() and await self._serve(Connection(reader, writer)):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, connection: Connection) -> bool:
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.split(": ", 1) for line in lines)
        request = Request(method, target, {name.lower(): value for name, value in pairs})
        path = target.partition("?")[0]
        self.requests.append(request)
        if path not in self.raw:
            request.body = await connection.read_body(request.headers)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self._handler(path)(request, connection)
        finally:
            self.running -= 1
            self.finished += 1
        return True

    def _handler(self, path: str) -> Handler:
        below = (each for prefix, each in self._below.items() if path.startswith(prefix))
        return self._handlers.get(path) or next(below, _ok)

    async def _slow(self, request: Request, connection: Connection) -> None:
        await self.gate.wait()
        connection.answer(b"slow")

    async def _stream(self, request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        connection.chunk(b"piece")
        await self.gate.wait()
        connection.chunk(b"rest")
        connection.writer.write(b"0\r\n\r\n")

    async def half(self, request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        connection.chunk(b"half")
        await connection.writer.drain()
        await self.gate.wait()
        connection.writer.transport.abort()


async def _ok(request: Request, connection: Connection) -> None:
    connection.answer(b"" if request.method == "HEAD" else f"ok {request.target}".encode())


async def _echo(request: Request, connection: Connection) -> None:
    connection.answer(request.body)
