"""A call of a replica that runs a task, on a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.http1.response_reader import BadResponse, ResponseReader
from hotplate.serving.gateway.sockets.dialing import open_streams

METHOD = b"POST"
"""The method of every task's request."""
READ_BYTES = 64 << 10

Take = Callable[[ResponseHead, bytes], Awaitable[None]]
"""Takes each piece of the response's body, with its head; at least one, which may be empty."""


class ReplicaGone(Exception):
    """The connection ended before the response did, or what came was not HTTP."""


class ReplicaCall:
    """A connection to a replica. Nothing is sent before `ask`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, worker: bool
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._response = ResponseReader(worker=worker, announces_start=worker)
        self._response.begin(self, METHOD)
        self._pieces: list[bytes] = []
        self.begun = not worker
        """Whether a handler may have begun: our worker says so; of another server it is not
        known."""

    @classmethod
    async def to(cls, address: str, connect_s: float, *, worker: bool) -> ReplicaCall:
        """Connects to our worker or any server. Raises OSError, also after `connect_s`."""
        async with asyncio.timeout(connect_s):
            reader, writer = await open_streams(address)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return cls(reader, writer, worker=worker)

    async def ask(self, head: bytes, body: AsyncIterator[bytes], take: Take) -> None:
        """Sends the request and takes the response, however long it lasts. Raises ReplicaGone, and
        what reading the body raises; then nothing was run, since the replica never got the whole
        request."""
        sending = asyncio.create_task(self._send(head, body))
        try:
            await self._receive(take)
        except ReplicaGone:
            if sending.done() and not sending.cancelled() and (error := sending.exception()):
                raise error from None
            raise
        finally:
            sending.cancel()
            with contextlib.suppress(BaseException):
                await sending

    def close(self) -> None:
        self._writer.transport.abort()

    # As `Response`

    def started(self) -> None:
        self.begun = True

    def waits(self) -> None:
        self.begun = False

    @property
    def returned(self) -> bytes:
        """Why the worker has not begun it and gives it back; empty = it does not."""
        return self._response.returned

    def on_head(self, head: ResponseHead) -> None:
        self.begun = True

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    # Inside

    async def _send(self, head: bytes, body: AsyncIterator[bytes]) -> None:
        try:
            self._writer.write(head)
            async for piece in body:
                self._writer.write(piece)
                await self._writer.drain()
        except ConnectionError:
            pass  # the receiving side reports it
        except BaseException:  # cancelled too: half a request must not look like a slow one
            self.close()
            raise

    async def _receive(self, take: Take) -> None:
        response = self._response
        while not response.ended:
            try:
                data = await self._reader.read(READ_BYTES)
            except OSError as error:
                raise ReplicaGone(f"broke the connection ({error})") from error
            if not data and response.ends_with_connection:
                return
            if not data:
                raise ReplicaGone("ended the connection before its response was complete")
            try:
                response.feed(data)
            except BadResponse as error:
                raise ReplicaGone(f"answered what is not HTTP/1.1 ({error})") from error
            if response.returned:
                raise ReplicaGone("is another one by now")
            pieces, self._pieces = self._pieces, []
            if response.head is not None:
                await take(response.head, b"".join(pieces))
