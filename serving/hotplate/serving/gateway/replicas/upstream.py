"""One connection to a replica: sends requests and reads their answers."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import httptools

from hotplate.serving.gateway.http1.head_cache import HEAD_END
from hotplate.serving.gateway.http1.request_head import Field
from hotplate.serving.gateway.http1.response_head import ResponseHead, is_interim, read_response
from hotplate.serving.gateway.replicas.response_source import Tap
from hotplate.serving.gateway.sockets.dead_peers import keep_alive

if TYPE_CHECKING:
    from hotplate.serving.gateway.proxy.exchange import Exchange
    from hotplate.serving.gateway.replicas.connection_pool import Pool

STARTED = b"HTTP/1.1 100 Started\r\n\r\n"
"""From our worker as a handler begins (`replica/handlers.py`), and from the gateway that owns a
route to the one that passes requests on."""
ACKED_BYTES_AT = 120
"""Where `tcpi_bytes_acked` is in Linux' `tcp_info`; it counts the connection's opening as one."""


class Upstream(Tap):
    """One connection to a replica, serving one exchange at a time; an `asyncio.Protocol`."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(worker=pool.worker, relays=pool.relays)
        self.pool = pool
        self.host = pool.host_field
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self._reused = False
        self._half_closed = False
        self._lost = False
        self._written_bytes = 0
        self._earlier_bytes = 0
        """Written for the exchanges before this one."""
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._readable = select.poll()
        self._parsing = False
        """The parser has some of the answer; it gets none of one that is known."""
        self._first = b""
        """What came of it first, while that is parsed."""
        self._paused = False
        self._head: ResponseHead | None = None
        self._ended = False
        self._more = False
        """Behind the answer another one began, which nobody has asked for."""
        self._trailers: Sequence[Field] = ()
        """Of the answer that has ended, and not of what may follow it."""
        self._until_end = False
        """Only the connection's end says where the answer ends."""

    @property
    def address(self) -> str:
        """As callers are told it."""
        return self.pool.shown

    # Its exchange

    def serve(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._earlier_bytes = self._written_bytes
        exchange.go(self)

    def write(self, data: bytes) -> None:
        self._written_bytes += len(data)
        if not self._lost:
            self._transport.write(data)

    def half_close(self) -> None:
        """Tells the replica that the caller has left; its own end is still waited for."""
        self._half_closed = True
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._transport.write_eof()

    def pause_reading(self) -> None:
        if not (self._paused or self._transport.is_closing()):
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()

    def leave(self) -> None:
        """Tells another gateway that the caller has left."""
        self._half_closed = True
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def descriptor(self) -> int:
        """The socket's; -1 = it has ended."""
        if self._transport.is_closing():
            return -1
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

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
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
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
        if self.exchange is not None:
            self.exchange.send_on()
        self._balance()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.pool.forget(self)
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if self.tunnel:
            exchange.tunnel_closed()
        elif self._until_end and exc is None:
            exchange.answer_end()
        else:
            self._lose(exchange, exc)

    # httptools

    def on_message_begin(self) -> None:
        self._more = self._ended
        self._fields: list[Field] = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        exchange = self.exchange
        status = self._parser.get_status_code()
        if exchange is None or self._ended:
            return
        if is_interim(status):
            if status == 100 and self.tells:
                exchange.started()
            return
        keep_alive = self._parser.should_keep_alive()
        head = read_response(
            status, self._reason, self._fields, keep_alive=keep_alive, worker=self.worker
        )
        self._fields = []  # of trailers, from here on
        if status == 101 and not exchange.request.upgrade:
            raise ValueError("an upgrade that nobody asked for")
        self._head = head
        self._remember(head)
        self._until_end = head.ends_with_connection(exchange.request.method)
        exchange.answer_head(head)
        if exchange.request.method == b"HEAD":
            # The parser cannot be told that no body follows, so it is done with.
            self._ended = True
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        if self._head is None:
            raise ValueError("a body behind an interim answer")
        if not self._ended and self.exchange is not None:
            self.exchange.answer_body(data)

    def on_message_complete(self) -> None:
        if self._head is not None and not self._ended:
            self._ended = True
            self._trailers = self._fields

    # Inside

    def _feed(self, exchange: Exchange, data: bytes) -> None:
        if self._head is None and self.tells and data.startswith(STARTED):
            # As the parser would find, for less. It sees what comes in several pieces.
            exchange.started()
            data = data[len(STARTED) :]
        if not self._parsing:
            if self._take_known(exchange, data):
                return
            self._parsing = True
            self._first = data
        self._parse(exchange, data)
        self._first = b""

    def _take_known(self, exchange: Exchange, data: bytes) -> bool:
        """Whether the data is an answer whose head is known, whole, and nothing else; it is then
        passed on by the shortest way."""
        heads = self.pool.heads
        head = heads.begins(data)
        if head is None:
            return False
        end = len(heads.newest_raw)
        if len(data) - end != head.content_length or exchange.request.method == b"HEAD":
            return False
        now = self.pool.now()
        self._let_go(now, keep=head.keep_alive and exchange.sent_whole)
        exchange.answer_whole(head, data[end:], now)
        return True

    def _remember(self, head: ResponseHead) -> None:
        """The same bytes may come again, if they came at once and say where the answer ends."""
        raw = self._first[: self._first.find(HEAD_END) + len(HEAD_END)]
        if head.content_length is None or head.chunked or head.bodiless or head.has_request_id:
            return
        # Where an interim answer came before it, they are that one's.
        if raw[9:12] == b"%d" % head.status and raw.endswith(HEAD_END):
            self.pool.heads.put(raw, head)

    def _parse(self, exchange: Exchange, data: bytes) -> None:
        clean = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserUpgrade) and self._opens_tunnel:
                self.tunnel = True
                self.pool.leave_out(self)
                exchange.open_tunnel(data[error.args[0] :])
                return
            # Bytes after a whole answer are not passed on; the answer is.
            if not self._ended:
                self.exchange = None
                self.abort()
                exchange.flush()
                exchange.answered_nonsense(str(error))
                return
            clean = False
        if self._ended:
            head = self._head
            keep = head is not None and head.keep_alive and exchange.sent_whole
            keep = keep and clean and not self._more
            trailers, self._trailers = self._trailers, ()
            self._let_go(self.pool.now(), keep=keep)
            exchange.answer_end(trailers)
        else:
            exchange.flush()

    @property
    def _opens_tunnel(self) -> bool:
        """Whether the answer is the 101, and not something behind it."""
        return self._head is not None and self._head.status == 101

    def _let_go(self, now: float, *, keep: bool) -> None:
        """The answer has ended; `keep`: the connection can carry another one."""
        self.exchange = None
        if keep:
            self._ended = self._parsing = False
            self._head = None
            self._reused = True
            self.resume_reading()
            self.pool.put(self, now)
        else:
            self.close()

    def _lose(self, exchange: Exchange, exc: Exception | None) -> None:
        """The connection ended under the exchange."""
        unread = self._head is None and exc is None and not self._request_acked()
        # A machine that is gone may have begun and not been heard.
        silent = exc is not None and not isinstance(exc, ConnectionError)
        if not self._half_closed and not (unread and self._reused):
            self.pool.failed("it ended a connection with a request on it")
        exchange.lost(unread=unread, silent=silent)

    def _request_acked(self) -> bool:
        """Whether the replica's machine has taken anything of this exchange's request. A replica
        that closed without an error before that can never read it."""
        sock = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
            return True
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKED_BYTES_AT + 8)
        if len(info) < ACKED_BYTES_AT + 8:
            return True
        (acked_bytes,) = struct.unpack_from("Q", info, ACKED_BYTES_AT)
        return bool(acked_bytes - 1 > self._earlier_bytes)

    def _balance(self) -> None:
        if self.exchange is not None and self.exchange.front is not None:
            self.exchange.front.balance()


def as_protocol(upstream: Upstream) -> asyncio.Protocol:
    """It is one, but for its base: compiled classes have only compiled ones (`compiled.py`)."""
    return cast("asyncio.Protocol", upstream)
