"""A caller's connection: reads requests, hands them over one at a time, writes the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from hotplate.serving.gateway.errors import (
    BadRequest,
    GatewayError,
    HeadTooLarge,
    TargetTooLong,
)
from hotplate.serving.gateway.exchange import Exchange
from hotplate.serving.gateway.headers import Field, error_body, own_answer, read_request

if TYPE_CHECKING:
    from hotplate.serving.gateway.route_server import RouteServer

H2C = b"h2c"
"""An offer to speak HTTP/2, which some clients make with every first request; it is passed over."""


class Front(asyncio.Protocol):
    """One connection. Requests that a caller sends ahead wait here until their turn."""

    def __init__(self, server: RouteServer) -> None:
        self.server = server
        self.write_paused = False
        self._limits = server.limits
        self._loop = server.loop
        self._transport: asyncio.Transport
        self._peer = b""
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._active: Exchange | None = None
        self._reading: Exchange | None = None
        """The exchange whose body is being read, or was read last."""
        self._ahead: deque[Exchange | BadRequest] = deque()
        self._advancing = False
        self._read_paused = False
        self._closed = False
        self._tunnel = False
        self._lingering: asyncio.TimerHandle | None = None
        self._idle_since = self._loop.time()
        self._fields: list[Field] = []
        self._target = b""
        self._in_head = False
        self._head_since: float | None = None
        self._head_bytes = 0
        self._head_raw = 0
        self._head_lines = 0

    # For the exchange

    def write(self, data: bytes) -> None:
        if not self._closed:
            self._transport.write(data)

    def answer_error(self, exchange: Exchange, error: GatewayError) -> None:
        self._answer(exchange, error.status, error_body(error), error.retry_after_s)

    def answer_local(self, exchange: Exchange, body: bytes) -> None:
        """Answers 200 with this JSON."""
        self._answer(exchange, 200, body, None)

    def finished(self, exchange: Exchange) -> None:
        """The exchange's answer has been written whole."""
        self._active = None
        if exchange.keep_alive and not self.server.closing:
            self._idle_since = self._loop.time()
            self._advance()
            if self._read_paused:
                self.balance()
        elif exchange.request_done:
            self.close()
        else:
            self._linger()

    def close(self) -> None:
        """Closes once everything written is out."""
        if not self._closed:
            self._closed = True
            self._idle_since = self._loop.time()
            self._transport.close()

    def cut(self) -> None:
        """Ends the connection in the middle of an answer, so that it does not look complete."""
        self._closed = True
        self._transport.abort()

    def balance(self) -> None:
        """Reads on, or stops reading, by how much of what was read has found its place."""
        exchange = self._reading
        full = len(self._ahead) >= self._limits.pipelined
        if exchange is not None and exchange.front is not None:
            upstream = exchange.upstream
            full = full or exchange.buffered >= self._limits.read_ahead_bytes
            full = full or (upstream is not None and upstream.write_paused)
        if full != self._read_paused and not self._transport.is_closing():
            self._read_paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # For the route

    def close_if_idle(self) -> None:
        """Closes a connection on which no request is being served."""
        if self._active is None and self._lingering is None:
            self.close()

    def sweep(self, now: float) -> None:
        """Ends a caller that has been idle, or that sends or takes too slowly."""
        idle_s = now - self._idle_since
        if self._closed:
            if idle_s >= self._limits.head_s:
                self._transport.abort()
        elif self._active is None and idle_s >= self._limits.idle_s:
            self.close()
        elif self._head_since is not None and now - self._head_since >= self._limits.head_s:
            self._head_since = None
            self._refuse(BadRequest(f"No whole header in {self._limits.head_s:g} s."))
            self._advance()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0].encode() if peer else b"unknown"
        self.server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closed or self._parser is None:
            return
        if self._tunnel:
            assert self._reading is not None
            self._reading.tunnel_out(data)
        else:
            self._feed(data)
            self._advance()
        self.balance()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._active is not None and self._active.upstream is not None:
            self._active.upstream.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self.server.closed(self)
        if self._lingering is not None:
            self._lingering.cancel()
        self._ahead.clear()
        exchange, self._active = self._active, None
        if exchange is not None and exchange.front is not None:
            exchange.caller_left()

    # httptools

    def on_message_begin(self) -> None:
        self._fields = []
        self._target = b""
        self._in_head = True
        self._head_bytes = self._head_raw = self._head_lines = 0

    def on_url(self, target: bytes) -> None:
        self._target += target
        if len(self._target) > self._limits.target_bytes:
            raise TargetTooLong(
                f"The request target has more than {self._limits.target_bytes} bytes; shorten it."
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        self._head_lines += 1
        if self._head_bytes > self._limits.head_bytes:
            raise self._head_too_large()
        if self._head_lines > self._limits.head_lines:
            raise HeadTooLarge(
                f"The request has more than {self._limits.head_lines} header lines; send fewer."
            )
        if self._in_head:  # and not a trailer, which is dropped
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        self._in_head = False
        self._head_since = None
        request = read_request(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._fields,
            peer=self._peer,
            new_id=self.server.new_id(),
        )
        if request.upgrade == H2C:
            request.upgrade = b""
            request.keep_alive = request.keep_alive and not request.has_body
        elif request.upgrade and request.has_body:
            raise BadRequest("A request to change the protocol has a body; send it without.")
        exchange = Exchange(self, self.server, request)
        self._reading = exchange
        self._ahead.append(exchange)

    def on_body(self, data: bytes) -> None:
        if self._reading is not None:
            self._reading.take_body(data)

    def on_message_complete(self) -> None:
        exchange = self._reading
        if exchange is not None and not exchange.request_done:
            exchange.end_body()
            if self._lingering is not None:
                self.close()

    # Inside

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        fields, in_head = self._fields, self._in_head
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, BadRequest):
                raise
            self._refuse(error.__context__)
        except httptools.HttpParserError as error:
            reading = self._reading
            if reading is None or not reading.request_done or reading.request.keep_alive:
                self._refuse(BadRequest(f"This is not a request in HTTP/1.1: {error}."))
        if self._in_head:
            self._watch_head(len(data) if in_head and self._fields is fields else 0)

    def _watch_head(self, size_bytes: int) -> None:
        """A head is still unfinished. The parser tells of whole lines only, so bytes are counted
        here too, or one endless line would fill the memory."""
        self._head_raw += size_bytes
        if self._head_since is None:
            self._head_since = self._loop.time()
        if self._head_raw > self._limits.head_bytes and self._parser is not None:
            self._refuse(self._head_too_large())

    def _head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The request's header has more than {self._limits.head_bytes} bytes; send less."
        )

    def _refuse(self, error: BadRequest) -> None:
        """The bytes make no sense from here on: answers what came before, then this, then ends."""
        self._parser = None
        reading = self._reading
        if reading is None or reading.request_done:
            self._ahead.append(error)
        elif reading is self._active:
            reading.fail(error)
        elif self._ahead and self._ahead[-1] is reading:
            self._ahead[-1] = error

    def _upgrade(self, rest: bytes) -> None:
        """The parser has stopped after a request that offers another protocol."""
        exchange = self._reading
        assert exchange is not None
        if exchange.request.upgrade:
            self._tunnel = True
            if rest:
                exchange.tunnel_out(rest)
            return
        # An offer that is passed over: the parser took what follows for the other protocol.
        exchange.request_done = not exchange.request.has_body
        self._parser = httptools.HttpRequestParser(self)
        if exchange.request.has_body:
            self._parser = httptools.HttpRequestParser(_BodyOnly(self, exchange))
            self._parser.feed_data(_framing(exchange))
        if rest:
            self._feed(rest)

    def _advance(self) -> None:
        """Starts the next request. Not entered twice: an answer given at once ends up here too."""
        if self._advancing:
            return
        self._advancing = True
        while self._ahead and self._active is None and not self._closed and not self._lingering:
            following = self._ahead.popleft()
            if isinstance(following, BadRequest):
                self._end_with(following)
                break
            self._active = following
            self.server.begin(following)
        self._advancing = False

    def _answer(
        self, exchange: Exchange, status: int, body: bytes, retry_after_s: float | None
    ) -> None:
        exchange.keep_alive = (
            exchange.keep_alive and exchange.request_done and not self.server.closing
        )
        request = exchange.request
        self.server.counters.answered(status)
        self.write(
            own_answer(
                status,
                body,
                method=request.method,
                keep_alive=exchange.keep_alive,
                http10=request.http10,
                request_id=request.request_id,
                retry_after_s=retry_after_s,
            )
        )
        self.finished(exchange)

    def _end_with(self, error: BadRequest) -> None:
        self.server.counters.refused(error.code)
        self.server.counters.answered(error.status)
        self.write(own_answer(error.status, error_body(error), keep_alive=False))
        self._linger()

    def _linger(self) -> None:
        """Reads on for a moment: closing on unread bytes would take the answer away again."""
        self._ahead.clear()
        if self._lingering is None:
            self._lingering = self._loop.call_later(self._limits.linger_s, self.close)
        self.balance()


class _BodyOnly:
    """Lets a parser read one request's body for a front that has its head already."""

    def __init__(self, front: Front, exchange: Exchange) -> None:
        self._exchange = exchange
        self.on_message_complete = front.on_message_complete

    def on_body(self, data: bytes) -> None:
        if not self._exchange.request_done:
            self._exchange.take_body(data)


def _framing(exchange: Exchange) -> bytes:
    if exchange.request.chunked:
        return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % exchange.request.content_length
