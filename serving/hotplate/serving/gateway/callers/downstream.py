"""A caller's connection: hands its requests over one at a time and writes their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from hotplate.serving.gateway.admission.terms import Local
from hotplate.serving.gateway.callers.half_close import CONTINUE, HalfClose
from hotplate.serving.gateway.callers.own_responses import last_answer, local_answer
from hotplate.serving.gateway.callers.timeouts import Patience
from hotplate.serving.gateway.errors import BadRequest, GatewayError
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.request_reader import RequestReader
from hotplate.serving.gateway.http1.response_head import error_body
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.forwarding import Sending
from hotplate.serving.gateway.replicas.upstream import STARTED
from hotplate.serving.gateway.sockets.dead_peers import has_hung_up, keep_taking

if TYPE_CHECKING:
    from hotplate.serving.gateway.route_server import RouteServer


class Front:
    """One connection. Requests that a caller sends ahead wait here until their turn.

    An `asyncio.Protocol`, see `as_protocol`.
    """

    def __init__(self, server: RouteServer, *, relayed: bool = False) -> None:
        """`relayed`: another gateway's connection, on which it passes on what its callers ask."""
        self.server = server
        self._relayed = relayed
        self.write_paused = False
        self._limits = server.limits
        self._patience = Patience(server.limits)
        self._loop = server.loop
        self._transport: asyncio.Transport
        self.peer = b"unknown"
        """The caller's address."""
        self._reader: RequestReader | None = None
        """None before the connection is made and after bytes that made no sense."""
        self._active: Exchange | None = None
        """The one whose turn it is."""
        self._reading: Exchange | None = None
        """The one whose body is being read, or was read last and is not answered."""
        self._ahead: deque[Exchange | BadRequest] = deque()
        self._awaited: Exchange | None = None
        """The one whose turn it is as soon as more of its body is here."""
        self._let_in: Sending | None = None
        """The one that may begin although its body still comes."""
        self._asked: Exchange | None = None
        """The one whose body was asked for last."""
        self._advancing = False
        self.read_paused = False
        self._paused_at = 0.0
        self._half_close: HalfClose | None = None
        """The caller sends nothing more, but may wait for answers."""
        self._closed = False
        self._lingering: asyncio.TimerHandle | None = None
        self._idle_since = self._loop.time()

    # For the exchange

    def write(self, data: bytes) -> None:
        if not self._closed:
            self._transport.write(data)

    def go_on(self) -> None:
        """Asks the caller for the body that it has announced, once."""
        if self._asked is not self._reading:
            self._asked = self._reading
            self.write(CONTINUE)
            self._patience.resumed(self._loop.time())

    def tell_started(self) -> None:
        """Another gateway, if it is one, is to know that the request may have an effect now."""
        if self._relayed:
            self.write(STARTED)

    def answer_error(self, exchange: Exchange, error: GatewayError) -> None:
        self.answer_local(exchange, Local(error_body(error), error.status), error.retry_after_s)

    def answer_local(
        self, exchange: Exchange, local: Local, retry_after_s: float | None = None
    ) -> None:
        exchange.keep_alive = exchange.keep_alive and exchange.request_done and not self.parting
        self.write(local_answer(self.server, exchange, local, retry_after_s))
        now = self._loop.time()
        self.server.told(exchange, now)
        self.finished(exchange, now)

    def finished(self, exchange: Exchange, now: float) -> None:
        """The exchange's answer has been written whole."""
        self._active = None
        if exchange is self._reading and exchange.request_done:
            self._reading = None
        if exchange.keep_alive and not self.server.closing:
            self._idle_since = now
            if self._ahead:
                self._advance()
            if self._half_close is not None:
                self._close_if_answered()
            elif self.read_paused:
                self.balance()
        elif exchange.request_done:
            self.close()
        else:
            self._linger()

    def serves(self, exchange: Sending) -> bool:
        """Whether it is this one's turn."""
        return self._active is exchange

    def awaits(self, exchange: Sending) -> bool:
        """Whether it is this one's turn, but for its body."""
        return self._awaited is exchange

    def let_in(self, exchange: Sending) -> None:
        """The exchange goes for a slot, and its body follows."""
        self._let_in = exchange
        self._advance()

    def silent_s(self, now: float) -> float:
        """How long the caller has sent nothing, of the time in which we read."""
        return 0.0 if self.read_paused else self._patience.silent_s(now)

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

    def tunnel_opened(self) -> None:
        """The caller speaks another protocol from here on, in which silence says nothing."""
        if not self._relayed:
            sock = self._transport.get_extra_info("socket")
            keep_taking(sock, self._limits.take_s)
        self.balance()

    def balance(self) -> None:
        """Reads on, or stops reading, by how much of what was read has found its place."""
        exchange = self._reading
        full = len(self._ahead) >= self._limits.pipelined
        if exchange is not None and exchange.front is not None:
            upstream = exchange.upstream
            if not self.awaits(exchange):  # what is awaited is kept, however long it is
                full = full or exchange.buffered >= self._limits.read_ahead_bytes
            full = full or (upstream is not None and upstream.write_paused)
        if full != self.read_paused and not self._transport.is_closing():
            self.read_paused = full
            if full:
                self._paused_at = self._loop.time()
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
                self._patience.resumed(self._loop.time())

    # For the route

    def end_if_it_takes_little(self, now: float) -> None:
        """Ends a caller that has a slot and takes so little of its answer that others need not
        wait for it."""
        active = self._active
        has_slot = active is not None and active.ticket is not None
        if has_slot and self._patience.takes_little(now, self._unsent_bytes):
            self.cut()

    def turn_away(self, error: GatewayError) -> None:
        """Answers with the error before anything was read, and closes."""
        self.write(last_answer(self.server, self.peer, error))
        self.close()

    @property
    def parting(self) -> bool:
        """Whether the answer that is under way is to be the connection's last."""
        return self.server.parting and not self._ahead

    def close_if_idle(self, for_s: float = 0.0) -> None:
        """Closes a connection on which no request is being served, for that long."""
        idle_s = self._loop.time() - self._idle_since
        served = self._active is not None or self._ahead or self._lingering is not None
        if not served and not self._patience.arriving and idle_s >= for_s:
            self.close()

    def sweep(self, now: float) -> None:
        """Ends a caller that has been idle, or that sends or takes too slowly."""
        limits = self._limits
        idle_s = now - self._idle_since
        if self._closed:
            if idle_s >= limits.take_s:
                self._transport.abort()
        elif self._has_gone(now):
            self.cut()
        elif (slow := self._slow(now)) is not None:
            self._refuse(slow)
            self._advance()
        elif self._active is None and not self._patience.arriving:
            if idle_s >= limits.idle_s:
                self.close()
            elif self._reader is not None:
                self._reader.rest()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].encode() if peer else b"unknown"
        self._reader = RequestReader(
            self._limits,
            peer=b"" if self._relayed else self.peer,
            proto=b"https" if transport.get_extra_info("sslcontext") else b"http",
            accept=self._accept,
            memo=self.server.heads,
        )
        self.server.callers.opened(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self._closed or reader is None:
            return
        if self._is_free:
            known = reader.known(data)
            if known is not None:
                request, body = known
                self._begin(request, body)
                return
        try:
            reader.feed(data)
        except BadRequest as error:
            self._refuse(error)
        self._patience.read(
            self._loop.time(), in_head=reader.in_head, awaits_body=self._awaits_body()
        )
        if self._lingering is not None and self._reading is not None:
            if self._reading.request_done:
                self.close()
        else:
            self._advance()
        self.balance()

    def eof_received(self) -> bool:
        """The caller sends nothing more. What it asked for whole it gets, unless it has left."""
        if self._half_close is None:
            active = self._active
            if active is None or not active.request_done or active.request.upgrade:
                return False
            if self._relayed:  # another gateway, which sends its end when its caller has left
                return False
            if self._closed or self._lingering or self._transport.get_extra_info("sslcontext"):
                return False
            self._reader = None
            if self._ahead and self._ahead[-1] is self._reading and not self._reading.request_done:
                self._ahead.pop()
            sock = self._transport.get_extra_info("socket")
            self._half_close = HalfClose(sock.fileno(), waits=self._may_go_on, left=self.cut)
        return not self._closed

    def pause_writing(self) -> None:
        self.write_paused = True
        self._patience.full(self._loop.time(), self._unsent_bytes)
        self.server.incoming.full(self)

    def resume_writing(self) -> None:
        self.write_paused = False
        self.server.incoming.taken(self)
        if self._active is not None and self._active.upstream is not None:
            self._active.upstream.resume_reading()
        self._advance()
        self.balance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._reader = None  # which knows this front: nothing is left for the collector
        self.server.callers.closed(self)
        if self.write_paused:
            self.server.incoming.taken(self)
        if self._lingering is not None:
            self._lingering.cancel()
        if self._half_close is not None:
            self._half_close.stop()
        self._ahead.clear()
        self._forsake()
        exchange, self._active = self._active, None
        if exchange is not None and exchange.front is not None:
            exchange.caller_left()

    # Inside

    def _has_gone(self, now: float) -> bool:
        """Whether the caller takes nothing for too long; or has left behind what the replica at a
        tunnel's other end does not take for too long."""
        if self.write_paused and self._patience.takes_nothing(now, self._unsent_bytes):
            return True
        upstream = None if self._active is None else self._active.upstream
        if not self.read_paused or upstream is None or not upstream.tunnel:
            return False
        stalled = now - self._paused_at >= self._limits.abandon_s
        return stalled and has_hung_up(self._transport.get_extra_info("socket"))

    def _may_go_on(self) -> bool:
        """Whether an interim answer may be written now, and it matters whether the caller has left.
        Once an answer is under way, a write that fails tells that."""
        active = self._active
        return active is not None and active.takes_interim_answers and not self._unsent_bytes

    def _close_if_answered(self) -> None:
        if self._active is None and not self._ahead:
            self.close()

    @property
    def _is_free(self) -> bool:
        """Whether a request that comes whole may begin at once."""
        return self._active is None and not (self._ahead or self.write_paused or self._lingering)

    def _begin(self, request: RequestHead, body: bytes) -> None:
        """What most requests come to, by the shortest way: as `_accept` and `_advance` would."""
        self._reading = self._active = exchange = self.server.exchange(self, request)
        if body:
            exchange.take_body(body)
        exchange.end_body(())
        self.server.begin(exchange, self._loop.time())

    def _accept(self, request: RequestHead) -> Exchange:
        if len(self._ahead) >= self._limits.pipelined_most:
            raise BadRequest(
                f"{len(self._ahead)} requests came ahead of their answers; wait for some answers."
            )
        self._patience.next_part()
        self._reading = exchange = self.server.exchange(self, request)
        self._ahead.append(exchange)
        return exchange

    def _refuse(self, error: BadRequest) -> None:
        """The bytes make no sense from here on: answers what came before, then this, then ends."""
        self._reader = None
        self._patience.next_part()
        reading = self._reading
        if reading is None or reading.request_done:
            self._ahead.append(error)
        elif reading is self._active:
            reading.fail(error)
        elif self._ahead and self._ahead[-1] is reading:
            self._ahead[-1] = error
            self._forsake()

    def _advance(self) -> None:
        """Starts the next request. Not entered twice: an answer given at once ends up here too."""
        if self._advancing:
            return
        self._advancing = True
        while self._next_may_begin():
            following = self._ahead.popleft()
            self._await(None)
            if isinstance(following, BadRequest):
                self._end_with(following)
            else:
                self._active = following
                self.server.begin(following, self._loop.time())
        self._advancing = False

    @property
    def _unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def _next_may_begin(self) -> bool:
        if not self._ahead or self._active is not None or self._closed or self._lingering:
            return False
        if self.write_paused:  # a caller that takes no answers is not owed more of them
            return False
        following = self._ahead[0]
        if following is not self._reading or following is self._let_in or not self._awaits_body():
            return True
        reading = self._reading
        if self._awaited is not reading:
            if not self.server.waits_for_body(reading):
                return True
            if reading.request.expects_continue and not reading.received:
                self.go_on()
        much = reading.received >= self._limits.read_ahead_bytes
        if much and self.server.incoming.lends(reading):
            return True
        self._await(reading)
        return False

    def _forsake(self) -> None:
        """Nothing more of what is awaited will come, or be wanted."""
        awaited = self._awaited
        self._await(None)
        if awaited is not None:
            awaited.forget_body()

    def _await(self, exchange: Exchange | None) -> None:
        """From now on more of this one's body is waited for; None = of nobody's."""
        before = self._awaited
        if before is not exchange:
            self._awaited = exchange
            if before is not None:
                self.server.incoming.arrived(before)
            if exchange is not None:
                self.server.incoming.expect(exchange)

    def _awaits_body(self) -> bool:
        """Whether the request that is being read is not here far enough to be served."""
        reading = self._reading
        if reading is None or reading.front is None or reading is self._active:
            return False
        return not reading.arrived

    def _slow(self, now: float) -> BadRequest | None:
        """Why the caller's time to send what it announced is over."""
        if self.read_paused or self._reader is None:
            return None
        active = self._active
        sending = active is not None and active is self._reading and active.receiving
        return self._patience.slow(now, sending=sending)

    def _end_with(self, error: BadRequest) -> None:
        self.write(last_answer(self.server, self.peer, error))
        self._linger()

    def _linger(self) -> None:
        """Reads on for a moment: closing on unread bytes would take the answer away again. That
        nothing follows the caller is told at once, but for TLS, where it cannot be told alone."""
        self._ahead.clear()
        self._forsake()
        if self._lingering is None:
            self._lingering = self._loop.call_later(self._limits.linger_s, self.close)
            if self._transport.can_write_eof():
                self._transport.write_eof()
        self.balance()


def as_protocol(front: Front) -> asyncio.Protocol:
    """It is one, but for its base: compiled classes have only compiled ones (`compiled.py`)."""
    return cast("asyncio.Protocol", front)
