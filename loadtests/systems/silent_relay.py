"""A relay of TCP connections that can lose what goes in one direction, or in both, without a word.

While a direction is cut, bytes of connections that are open and of new ones are read and lost, as
those that a broken network takes: nobody is told. What was lost does not come later, so such a
connection is closed when its direction is whole again: TCP's peers would have given it up, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Self

Direction = Literal["to", "from"]
"""`to` the server behind the relay, or `from` it."""
_PIECE_BYTES = 1 << 16


class SilentRelay:
    """Listens on a port of its own until its block ends, and passes on to `port` of this
    machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._cut: frozenset[Direction] = frozenset()
        self._maimed: set[asyncio.StreamWriter] = set()
        """Ends of connections of which something was lost."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.lost_bytes = 0
        self.port = 0

    @contextmanager
    def cut(self, *directions: Direction) -> Iterator[None]:
        """Loses all that goes in these directions meanwhile."""
        self._cut = frozenset(directions)
        try:
            yield
        finally:
            self._cut = frozenset()
            for writer in self._maimed:
                writer.transport.abort()
            self._maimed.clear()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, there[1], "to", ends))
                group.create_task(self._pass(there[0], writer, "from", ends))
        finally:
            self._writers -= ends
            self._maimed -= ends

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        ends: set[asyncio.StreamWriter],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                if direction in self._cut:
                    self.lost_bytes += len(data)
                    self._maimed |= ends
                else:
                    writer.write(data)
                    await writer.drain()
        if direction in self._cut:  # its end is lost, too
            self._maimed |= ends
            return
        writer.close()
