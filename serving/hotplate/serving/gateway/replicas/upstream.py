"""One connection to a replica: sends requests and reads their answers."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Sequence
from typing import cast

import httptools

from hotplate.serving.gateway.http1.head_cache import HEAD_END, HeadCache
from hotplate.serving.gateway.http1.request_head import Field
from hotplate.serving.gateway.http1.response_head import ResponseHead, is_interim, read_response
from hotplate.serving.gateway.replicas.call import Call, Destination
from hotplate.serving.gateway.replicas.response_source import Tap
from hotplate.serving.gateway.sockets.dead_peers import keep_alive

STARTED = b"HTTP/1.1 100 Started\r\n\r\n"
"""From our worker as a handler begins (`replica/handlers.py`), and from the gateway that owns a
route to the one that passes requests on."""
ACKED_BYTES_AT = 120
"""Where `tcpi_bytes_acked` is in Linux' `tcp_info`; it counts the connection's opening as one."""


class ConnectionOwner(Destination):
    """What a connection tells whoever opened it."""

    relays: bool
    """It is another gateway, which is to know when a caller leaves."""
    host_field: bytes
    """The `Host` of requests whose callers named none."""
    heads: HeadCache[ResponseHead]
    """Of its responses."""

    def now(self) -> float:
        """The loop's time, seconds."""
        raise NotImplementedError

    def put(self, upstream: Upstream, now: float) -> None:
        """Takes back a connection whose response has ended."""
        raise NotImplementedError

    def leave_out(self, upstream: Upstream) -> None:
        """The connection is a tunnel now."""
        raise NotImplementedError

    def forget(self, upstream: Upstream) -> None:
        """The connection has ended."""
        raise NotImplementedError

    def failed(self, reason: str) -> None:
        """The replica ended a connection with a request on it."""
        raise NotImplementedError


class Upstream(Tap):
    """One connection to a replica, serving one call at a time; an `asyncio.Protocol`."""

    def __init__(self, owner: ConnectionOwner) -> None:
        super().__init__(worker=owner.worker, relays=owner.relays, host=owner.host_field)
        self.owner = owner
        self.call: Call | None = None
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
        return self.owner.shown

    # Its call

    def serve(self, call: Call) -> None:
        self.call = call
        self._earlier_bytes = self._written_bytes
        call.go(self)

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
        call = self.call
        if call is None:
            self.abort()
        elif self.tunnel:
            call.on_tunnel(data)
        else:
            self._feed(call, data)

    def pause_writing(self) -> None:
        self.write_paused = True
        self._balance()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self.call is not None:
            self.call.send_on()
        self._balance()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.owner.forget(self)
        call, self.call = self.call, None
        if call is None:
            return
        if self.tunnel:
            call.tunnel_closed()
        elif self._until_end and exc is None:
            call.on_end()
        else:
            self._lose(call, exc)

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
        call = self.call
        status = self._parser.get_status_code()
        if call is None or self._ended:
            return
        if is_interim(status):
            if status == 100 and self.tells:
                call.started()
            return
        keep_alive = self._parser.should_keep_alive()
        head = read_response(
            status, self._reason, self._fields, keep_alive=keep_alive, worker=self.worker
        )
        self._fields = []  # of trailers, from here on
        if status == 101 and not call.request.upgrade:
            raise ValueError("an upgrade that nobody asked for")
        self._head = head
        self._remember(head)
        self._until_end = head.ends_with_connection(call.request.method)
        call.on_head(head)
        if call.request.method == b"HEAD":
            # The parser cannot be told that no body follows, so it is done with.
            self._ended = True
            self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        if self._head is None:
            raise ValueError("a body behind an interim answer")
        if not self._ended and self.call is not None:
            self.call.on_body(data)

    def on_message_complete(self) -> None:
        if self._head is not None and not self._ended:
            self._ended = True
            self._trailers = self._fields

    # Inside

    def _feed(self, call: Call, data: bytes) -> None:
        if self._head is None and self.tells and data.startswith(STARTED):
            # As the parser would find, for less. It sees what comes in several pieces.
            call.started()
            data = data[len(STARTED) :]
        if not self._parsing:
            if self._take_known(call, data):
                return
            self._parsing = True
            self._first = data
        self._parse(call, data)
        self._first = b""

    def _take_known(self, call: Call, data: bytes) -> bool:
        """Whether the data is an answer whose head is known, whole, and nothing else; it is then
        passed on by the shortest way."""
        heads = self.owner.heads
        head = heads.begins(data)
        if head is None:
            return False
        end = len(heads.newest_raw)
        if len(data) - end != head.content_length or call.request.method == b"HEAD":
            return False
        now = self.owner.now()
        self._let_go(now, keep=head.keep_alive and call.sent_whole)
        call.on_response(head, data[end:], now)
        return True

    def _remember(self, head: ResponseHead) -> None:
        """The same bytes may come again, if they came at once and say where the answer ends."""
        raw = self._first[: self._first.find(HEAD_END) + len(HEAD_END)]
        if head.content_length is None or head.chunked or head.bodiless or head.has_request_id:
            return
        # Where an interim answer came before it, they are that one's.
        if raw[9:12] == b"%d" % head.status and raw.endswith(HEAD_END):
            self.owner.heads.put(raw, head)

    def _parse(self, call: Call, data: bytes) -> None:
        clean = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error, httptools.HttpParserUpgrade) and self._opens_tunnel:
                self.tunnel = True
                self.owner.leave_out(self)
                call.open_tunnel(data[error.args[0] :])
                return
            # Bytes after a whole answer are not passed on; the answer is.
            if not self._ended:
                self.call = None
                self.abort()
                call.flush()
                call.on_nonsense(str(error))
                return
            clean = False
        if self._ended:
            head = self._head
            keep = head is not None and head.keep_alive and call.sent_whole
            keep = keep and clean and not self._more
            trailers, self._trailers = self._trailers, ()
            self._let_go(self.owner.now(), keep=keep)
            call.on_end(trailers)
        else:
            call.flush()

    @property
    def _opens_tunnel(self) -> bool:
        """Whether the answer is the 101, and not something behind it."""
        return self._head is not None and self._head.status == 101

    def _let_go(self, now: float, *, keep: bool) -> None:
        """The answer has ended; `keep`: the connection can carry another one."""
        self.call = None
        if keep:
            self._ended = self._parsing = False
            self._head = None
            self._reused = True
            self.resume_reading()
            self.owner.put(self, now)
        else:
            self.close()

    def _lose(self, call: Call, exc: Exception | None) -> None:
        """The connection ended under the call."""
        unread = self._head is None and exc is None and not self._request_acked()
        # A machine that is gone may have begun and not been heard.
        silent = exc is not None and not isinstance(exc, ConnectionError)
        if not self._half_closed and not (unread and self._reused):
            self.owner.failed("it ended a connection with a request on it")
        call.lost(unread=unread, silent=silent)

    def _request_acked(self) -> bool:
        """Whether the replica's machine has taken anything of this call's request. A replica
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
        if self.call is not None:
            self.call.balance()


def as_protocol(upstream: Upstream) -> asyncio.Protocol:
    """It is one, but for its base: compiled classes have only compiled ones (`compiled.py`)."""
    return cast("asyncio.Protocol", upstream)
