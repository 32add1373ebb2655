"""Connections to one replica: the protocol that reads answers, and the pool that keeps them."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import httptools

from hotplate.serving.gateway.answer_head import AnswerHead, read_answer
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.request_head import Field

if TYPE_CHECKING:
    from hotplate.serving.gateway.exchange import Exchange

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A node that vanishes is noticed after half a minute; otherwise its slots would stay taken."""


class Upstream(asyncio.Protocol):
    """One connection to a replica, serving one exchange at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.host = pool.host_field
        self.exchange: Exchange | None = None
        self.tunnel = False
        self.write_paused = False
        self.idle_since = 0.0
        self._reused = False
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._readable = select.poll()
        self._begun = False
        """A byte of the answer has come."""
        self._head: AnswerHead | None = None
        self._ended = False
        self._trailers: Sequence[Field] = ()
        """Of the answer that has ended, and not of what may follow it."""
        self._until_end = False
        """Only the connection's end says where the answer ends."""

    # Its exchange

    def serve(self, exchange: Exchange) -> None:
        self.exchange = exchange
        exchange.go(self)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def half_close(self) -> None:
        """Tells the replica that nothing more comes; its own end is still waited for."""
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._transport.write_eof()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def usable(self) -> bool:
        """Whether an idle connection can carry a request: anything readable on it, its end above
        all, means no. This keeps a request from being sent into a connection closed meanwhile."""
        return not self._transport.is_closing() and not self._readable.poll(0)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if not self.pool.relays:
            _keep_alive(sock)
        self._readable.register(sock.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.abort()
        elif self.tunnel:
            exchange.tunnel_in(data)
        else:
            self._feed(exchange, data)

    def pause_writing(self) -> None:
        self.write_paused = True
        self._balance()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._balance()

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.forget(self)
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if self.tunnel:
            exchange.tunnel_closed()
        elif self._until_end and exc is None:
            exchange.answer_end()
        elif self._reused and not self._begun and exchange.repeatable:
            exchange.retried = True
            exchange.upstream = None
            self.pool.connect(exchange)
        else:
            exchange.lost("ended the connection before its answer was complete")

    # httptools

    def on_message_begin(self) -> None:
        self._fields: list[Field] = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self.exchange
        status = self._parser.get_status_code()
        if exchange is None or self._ended or (status < 200 and status != 101):
            return
        keep_alive = self._parser.should_keep_alive()
        head = read_answer(status, self._reason, self._fields, keep_alive=keep_alive)
        self._fields = []  # of trailers, from here on
        if status == 101 and not exchange.request.upgrade:
            raise ValueError("an upgrade that nobody asked for")
        self._head = head
        self._until_end = head.ends_with_connection(exchange.request.method)
        exchange.answer_head(head)
        if exchange.request.method == b"HEAD":
            # The parser cannot be told that no body follows, so it is done with.
            self._ended = True
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        if not self._ended and self.exchange is not None:
            self.exchange.answer_body(data)

    def on_message_complete(self) -> None:
        if self._head is not None and not self._ended:
            self._ended = True
            self._trailers = self._fields

    # Inside

    def _feed(self, exchange: Exchange, data: bytes) -> None:
        self._begun = True
        clean = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserUpgrade) and self._opens_tunnel:
                self.tunnel = True
                exchange.open_tunnel(data[error.args[0] :])
                return
            # Bytes after a whole answer are not passed on; the answer is.
            if not self._ended:
                self.exchange = None
                self.abort()
                exchange.flush()
                exchange.lost(f"answered what is not HTTP/1.1 ({error})")
                return
            clean = False
        if self._ended:
            self._finish(exchange, clean)
        else:
            exchange.flush()

    @property
    def _opens_tunnel(self) -> bool:
        """Whether the answer is the 101, and not something behind it."""
        return self._head is not None and self._head.status == 101

    def _finish(self, exchange: Exchange, clean: bool) -> None:
        head = self._head
        trailers, self._trailers = self._trailers, ()
        self.exchange = None
        if clean and head is not None and head.keep_alive and exchange.request_done:
            self._begun = self._ended = False
            self._head = None
            self._reused = True
            self.resume_reading()
            self.pool.put(self)
        else:
            self.close()
        exchange.answer_end(trailers)

    def _balance(self) -> None:
        if self.exchange is not None and self.exchange.front is not None:
            self.exchange.front.balance()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in KEEPALIVE.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


class Pool:
    """The connections to one replica. Idle ones are used newest first."""

    relays = False
    """It is another gateway, which is to know when a caller leaves."""

    def __init__(self, address: str, limits: Limits) -> None:
        self.address = address
        self.host_field = address.encode()
        self._limits = limits
        self._idle: list[Upstream] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def dispatch(self, exchange: Exchange) -> None:
        """Sends the exchange on an idle connection, or on a new one."""
        while self._idle:
            upstream = self._idle.pop()
            # One that came back in this turn of the loop cannot have been found closed yet.
            if upstream.idle_since == self._loop.time() or upstream.usable:
                upstream.serve(exchange)
                return
            upstream.abort()
        self.connect(exchange)

    def connect(self, exchange: Exchange) -> None:
        """Sends the exchange on a new connection."""
        task = self._loop.create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def put(self, upstream: Upstream) -> None:
        """Takes back a connection whose answer has ended."""
        if self._closed:
            upstream.close()
            return
        upstream.idle_since = self._loop.time()
        self._idle.append(upstream)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.upstream_idle_s, self._close_idle)

    def forget(self, upstream: Upstream) -> None:
        if upstream in self._idle:
            self._idle.remove(upstream)

    def close(self) -> None:
        """Closes what is idle now, and everything else as its answer ends."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for upstream in self._idle:
            upstream.close()
        self._idle.clear()

    async def _connect(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_s):
                upstream = await self._open()
        except OSError as error:  # a timeout is one of them
            exchange.unreachable(str(error) or "no connection in time")
            return
        if exchange.front is not None and exchange.ticket is not None:
            upstream.serve(exchange)
        else:
            self.put(upstream)

    async def _open(self) -> Upstream:
        host, _, port = self.address.rpartition(":")
        _, upstream = await self._loop.create_connection(
            lambda: Upstream(self), host.strip("[]"), int(port)
        )
        return upstream

    def _close_idle(self) -> None:
        self._sweep = None
        oldest = self._loop.time() - self._limits.upstream_idle_s
        for upstream in [u for u in self._idle if u.idle_since <= oldest]:
            self._idle.remove(upstream)
            upstream.close()
        if self._idle:
            due = self._idle[0].idle_since + self._limits.upstream_idle_s
            self._sweep = self._loop.call_at(due, self._close_idle)
