"""The Unix socket over which replicas borrow blobs.

One connection is one lease on one file. Lines of JSON:

    replica → {"open": "<path below the trees' folder>"}
              or {"open_url": "<URL of one file>", "token": "<the agent's>", "only_wanted": bool}:
              whoever has the agent's token may open any URL; such a file is never linked. One of
              which only what is wanted is to come is forgotten when its last reader leaves
    agent   → {"size": n, "chunk": 8388608, "done": [verified chunks]} + a read-only descriptor
    agent   → {"done": [i, …]} as chunks are verified, {"complete": true} after the last one,
              {"linked": true} once the path itself is the complete file,
              {"error": {"code", "message"}} if it cannot be had
    replica → {"want": [i, …]} at any time: these first
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import socket
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from hotplate.cache.errors import CacheError, Unauthorized
from hotplate.cache.holding import Holding
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.node import Node
from hotplate.cache.pulls import Pulls

SOCKET_NAME = "agent.sock"

_LINE_BYTES = 4 << 20
"""A wish for every chunk of a terabyte fits."""


class Lending:
    """Serves `<folder>/agent.sock`, for its owner only."""

    def __init__(self, node: Node, pulls: Pulls, folder: Path, token: str = "") -> None:
        self._node = node
        self._pulls = pulls
        self._token = token
        self._listener = _listen(folder)
        self._tasks = {asyncio.create_task(self._accept())}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            task = loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the replica has left
            lines = _Lines(connection)
            try:
                await self._lease(lines)
            except CacheError as error:
                await lines.send({"error": {"code": error.code, "message": str(error)}})
            except (ValueError, KeyError, TypeError) as error:
                message = f"not a request of this socket: {error!r}"
                await lines.send({"error": {"code": "bad_request", "message": message}})

    async def _lease(self, lines: _Lines) -> None:
        request = await lines.receive()
        if request is None:
            return
        path, linked, holding = await self._open(request)
        async with self._node.holdings.lend(holding) as fd:
            told = len(holding.done)
            opening = {
                "size": holding.content.size_bytes,
                "chunk": CHUNK_BYTES,
                "done": holding.done[:told],
            }
            await lines.send(opening, fd)
            telling = asyncio.create_task(_tell(lines, linked, path, holding, told))
            hearing = asyncio.create_task(self._hear(lines, holding))
            try:
                await asyncio.wait({telling, hearing}, return_when=asyncio.FIRST_EXCEPTION)
                await (telling if telling.done() else hearing)
                await hearing
            finally:
                telling.cancel()
                hearing.cancel()

    async def _open(self, request: dict[str, Any]) -> tuple[str, Set[str], Holding]:
        """The file's name, the names that are complete files by now, and what there is of it."""
        if "open_url" in request:
            given = str(request.get("token", "")) if self._token else ""
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                raise Unauthorized("opening a URL needs the agent's token; set its token file")
            url = str(request["open_url"])
            whole = not request.get("only_wanted", False)
            return url, frozenset(), await self._pulls.open(url, whole)
        tree, entry = await self._node.locate(str(request["open"]))
        return entry.path, tree.linked, tree.holdings[entry.path]

    async def _hear(self, lines: _Lines, holding: Holding) -> None:
        """Takes wishes until the replica leaves."""
        while (request := await lines.receive()) is not None:
            self._node.holdings.want(holding, [int(index) for index in request["want"]])
        raise ConnectionResetError


async def _tell(lines: _Lines, linked: Set[str], path: str, holding: Holding, told: int) -> None:
    """Pushes news of the file until there will be none."""
    complete = False

    def has_news() -> bool:
        more = len(holding.done) > told or (holding.complete and not complete)
        return more or path in linked

    while not (complete and path in linked):
        await holding.until(has_news)
        if len(holding.done) > told:
            news, told = holding.done[told:], len(holding.done)
            await lines.send({"done": news})
        if holding.complete and not complete:
            complete = True
            await lines.send({"complete": True})
    await lines.send({"linked": True})


class _Lines:
    """JSON lines over a non-blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    async def receive(self) -> dict[str, Any] | None:
        """The next line; None when the other side has left. Raises ValueError."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LINE_BYTES:
                raise ValueError(f"a line of more than {_LINE_BYTES} bytes")
            data = await self._loop.sock_recv(self._socket, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("a line that is no JSON object")
        return value

    async def send(self, value: dict[str, Any], fd: int | None = None) -> None:
        data = json.dumps(value).encode() + b"\n"
        if fd is not None:
            # The first bytes on a fresh connection: its buffer has room for some of them.
            data = data[socket.send_fds(self._socket, [data], [fd]) :]
        await self._loop.sock_sendall(self._socket, data)


def _listen(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(folder / SOCKET_NAME) as path:
        Path(path).unlink(missing_ok=True)  # the lock says that no other agent lives here
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
    listener.setblocking(False)
    listener.listen(128)
    return listener


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Another name of `path`, short enough for a socket's address (108 bytes)."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
