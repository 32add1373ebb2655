"""One connection to a replica: sends requests and reads their responses."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from typing import cast

from hotplate.machine.dead_peers import keep_alive
from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.http1.response_reader import (
    ELSEWHERE,
    BadResponse,
    ResponseReader,
)
from hotplate.serving.gateway.replicas.call import Call, Destination
from hotplate.serving.gateway.replicas.fence import ANOTHER
from hotplate.serving.gateway.replicas.response_source import ResponseSource

ACKED_BYTES_AT = 120
"""Where `tcpi_bytes_acked` is in Linux' `tcp_info`; it counts the connection's opening as one."""


class ConnectionOwner(Destination):
    """What a connection calls of its owner."""

    relays: bool
    """Whether it is another gateway, which has to know when a caller leaves."""
    host_field: bytes
    """The `Host` of requests whose callers named none."""
    heads: HeadCache[ResponseHead]
    """The heads of earlier responses."""

    def now(self) -> float:
        """The loop's time, seconds."""
        raise NotImplementedError

    def take_back(self, upstream: Upstream, now: float) -> None:
        """Takes back a connection whose response has ended."""
        raise NotImplementedError

    def tunnel_opened(self, upstream: Upstream) -> None:
        """The connection is a tunnel now."""
        raise NotImplementedError

    def connection_ended(self, upstream: Upstream) -> None:
        """The connection has ended."""
        raise NotImplementedError


class Upstream(ResponseSource):
    """One connection to a replica, serving one call at a time; an `asyncio.Protocol`."""

    def __init__(self, owner: ConnectionOwner) -> None:
        super().__init__(worker=owner.worker, relays=owner.relays, host=owner.host_field)
        self.owner = owner
        self.call: Call | None = None
        self.idle_since = 0.0
        self._reused = False
        self._half_closed = False
        self.silent = False
        """Nothing is heard of the other side any longer, so what it said last may be lost."""
        self._lost = False
        self._written_bytes = 0
        self._earlier_bytes = 0
        """Bytes written for the calls before this one."""
        self._reader = ResponseReader(
            worker=owner.worker, announces_start=self.announces_start, heads=owner.heads
        )
        self._transport: asyncio.Transport
        self._readable = select.poll()
        self._paused = False

    @property
    def address(self) -> str:
        """The address as callers may see it."""
        return self.owner.public_address

    def fence_line(self, *, needs_slot: bool, may_return: bool) -> bytes:
        return self.owner.fence.line(needs_slot=needs_slot, may_return=may_return)

    # Its call

    def serve(self, call: Call) -> None:
        self.call = call
        self._earlier_bytes = self._written_bytes
        request = call.request
        self._reader.begin(call, request.method, upgrade=bool(request.upgrade))
        call.send_to(self)

    def write(self, data: bytes) -> None:
        self._written_bytes += len(data)
        if not self._lost:
            self._transport.write(data)

    def half_close(self) -> None:
        """Notifies the replica that the caller has left; its end is still waited for."""
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

    def abandon(self) -> None:
        """Notifies another gateway that the caller has left."""
        self._half_closed = True
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def descriptor(self) -> int:
        """The socket's descriptor; -1 = the connection has ended."""
        if self._transport.is_closing():
            return -1
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

    @property
    def usable(self) -> bool:
        """Whether an idle connection can carry a request. It cannot if anything is readable on it,
        such as its end. This prevents that a request is sent into a closed connection."""
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
        self._adjust_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self.call is not None:
            self.call.send_more()
        self._adjust_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.owner.connection_ended(self)
        call, self.call = self.call, None
        if call is None:
            return
        if self.tunnel:
            call.tunnel_closed()
        elif self._reader.ends_with_connection and exc is None:
            call.on_end()
        else:
            self._lose_call(call, exc)

    # Inside

    def _feed(self, call: Call, data: bytes) -> None:
        reader = self._reader
        data = reader.after_started(data)
        if not data:
            return
        head = reader.known(data)
        if head is not None:
            now = self.owner.now()
            self._release(now, keep=head.keep_alive and call.sent_whole)
            call.on_response(head, data[len(self.owner.heads.newest_raw) :], now)
            return
        try:
            reader.feed(data)
        except BadResponse as error:
            self.call = None
            self.abort()
            call.flush()
            call.on_invalid_response(str(error))
            return
        if reader.returned:
            self._give_back(call, reader.returned)
        elif reader.tunnel is not None:
            self.tunnel = True
            self.owner.tunnel_opened(self)
            call.open_tunnel(reader.tunnel)
        elif reader.ended:
            trailers = reader.trailers
            self._release(self.owner.now(), keep=reader.reusable and call.sent_whole)
            call.on_end(trailers)
        else:
            call.flush()

    def _give_back(self, call: Call, why: bytes) -> None:
        """The replica has not begun the request, and waits for the connection's end."""
        self.call = None
        self.abort()
        if why == ELSEWHERE:
            self.owner.failed(ANOTHER)
        call.lost(unread=True, silent=False, returned=True)

    def _release(self, now: float, *, keep: bool) -> None:
        """The response has ended; `keep`: the connection can carry another one, unless it was ended
        towards the replica, because its caller had left."""
        self.call = None
        if keep and not self._half_closed:
            self._reused = True
            self.resume_reading()
            self.owner.take_back(self, now)
        else:
            self.close()

    def _lose_call(self, call: Call, exc: Exception | None) -> None:
        """The connection ended under the call."""
        # A machine that vanished may have begun the request without its notice arriving here.
        silent = self.silent or (exc is not None and not isinstance(exc, ConnectionError))
        closed = exc is None and not silent
        unread = self._reader.head is None and closed and not self._request_acked()
        if not self._half_closed and not (unread and self._reused):
            self.owner.failed("it ended a connection with a request on it")
        call.lost(unread=unread, silent=silent)

    def _request_acked(self) -> bool:
        """Whether the replica's machine has acknowledged any of this call's request. If it had not,
        and the connection was closed without an error, the replica can never read it."""
        sock = self._transport.get_extra_info("socket")
        if sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
            return True
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKED_BYTES_AT + 8)
        if len(info) < ACKED_BYTES_AT + 8:
            return True
        (acked_bytes,) = struct.unpack_from("Q", info, ACKED_BYTES_AT)
        return bool(acked_bytes - 1 > self._earlier_bytes)

    def _adjust_reading(self) -> None:
        if self.call is not None:
            self.call.adjust_reading()


def as_protocol(upstream: Upstream) -> asyncio.Protocol:
    """It is a protocol but for its base class, because compiled classes have compiled bases only
    (`compiled.py`)."""
    return cast("asyncio.Protocol", upstream)
