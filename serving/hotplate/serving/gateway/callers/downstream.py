"""A caller's connection: hands its requests over one at a time and writes their answers.

    bytes ──► RequestReader ──► Turns ──► exchange, as its turn comes ──► a slot, a replica
    bytes ◄── CallerTransport ◄────────── exchange

The reader (`http1/request_reader.py`) makes requests of bytes, `turns.py` says which of them is
served, and the route (`host.py`) makes an exchange of each and lets it in. A request begins when it
is here whole, or when the gate for bodies lets it in earlier (`proxy/body_gate.py`). What comes
faster than it finds a place is not read (`balance`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from hotplate.serving.gateway.admission.terms import Local
from hotplate.serving.gateway.callers.half_close import CONTINUE, HalfClose
from hotplate.serving.gateway.callers.host import Host
from hotplate.serving.gateway.callers.own_responses import last_answer, local_answer
from hotplate.serving.gateway.callers.transport import CallerTransport
from hotplate.serving.gateway.errors import BadRequest, GatewayError
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.request_reader import RequestReader
from hotplate.serving.gateway.http1.response_head import error_body
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.replicas.call import Call


class Downstream(CallerTransport):
    """One connection. Requests that a caller sends ahead wait here until their turn.

    An `asyncio.Protocol`, see `as_protocol`.
    """

    def __init__(
        self,
        host: Host,
        *,
        opened: Callable[[Downstream], None],
        closed: Callable[[Downstream], None],
        relayed: bool = False,
    ) -> None:
        """`opened` and `closed` are called with it as the connection is made and lost; `relayed`:
        another gateway's connection, on which it passes on what its callers ask."""
        super().__init__(host.context, relayed=relayed)
        self._host = host
        self._opened = opened
        self._lost = closed
        self._reader: RequestReader | None = None
        """None before the connection is made and after bytes that made no sense."""
        self._asked: Exchange | None = None
        """The one whose body was asked for last."""
        self._advancing = False
        self._half_close: HalfClose | None = None
        """The caller sends nothing more, but may wait for answers."""
        self._lingering: asyncio.TimerHandle | None = None

    # For the exchange

    @property
    def parting(self) -> bool:
        return self._host.parting and not self.turns.ahead

    def go_on(self) -> None:
        if self._asked is not self.turns.reading:
            self._asked = self.turns.reading
            self.write(CONTINUE)
            self._timeouts.resumed(self._loop.time())

    def answer_error(self, error: GatewayError) -> None:
        self.answer_local(Local(error_body(error), error.status), error.retry_after_s)

    def answer_local(self, local: Local, retry_after_s: float | None = None) -> None:
        exchange = self.turns.active
        assert exchange is not None, "only the one whose turn it is gets an answer"
        exchange.keep_alive = exchange.keep_alive and exchange.request_done and not self.parting
        self.write(local_answer(exchange, local, retry_after_s))
        now = self._loop.time()
        exchange.note_end(now)
        self.finished(now)

    def finished(self, now: float) -> None:
        turns = self.turns
        exchange = turns.active
        assert exchange is not None, "only the one whose turn it is gets an answer"
        turns.answered(whole=exchange.request_done)
        if exchange.keep_alive and not self.context.dispatcher.closing:
            self._idle_since = now
            if turns.ahead:
                self._advance()
            if self._half_close is not None:
                if turns.active is None and not turns.ahead:
                    self.close()
            elif self.read_paused:
                self.balance()
        elif exchange.request_done:
            self.close()
        else:
            self._linger()

    def let_in(self, call: Call) -> None:
        self.turns.let_in = self.turns.awaited
        self._advance()

    def begin_again(self, now: float) -> None:
        if self.turns.active is not None:
            self._host.begin(self.turns.active, now)

    def balance(self) -> None:
        exchange = self.turns.reading
        full = self.turns.ahead >= self._limits.pipelined
        if exchange is not None and exchange.caller is not None:
            upstream = exchange.upstream
            if not self.awaits(exchange):  # what is awaited is kept, however long it is
                full = full or exchange.buffered >= self._limits.read_ahead_bytes
            full = full or (upstream is not None and upstream.write_paused)
        self._pause_reading(full)

    # For the route

    def sweep(self, now: float) -> None:
        """Ends a caller that has been idle, or that sends or takes too slowly."""
        limits = self._limits
        idle_s = now - self._idle_since
        if self.closed:
            if idle_s >= limits.take_s:
                self._transport.abort()
        elif self._has_gone(now):
            self.cut()
        elif self._reader is not None and (slow := self._slow(now)) is not None:
            self._refuse(slow)
            self._advance()
        elif self.turns.active is None and not self._timeouts.arriving:
            if idle_s >= limits.idle_s:
                self.close()
            elif self._reader is not None:
                self._reader.rest()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._reader = RequestReader(
            self._limits,
            peer=b"" if self._relayed else self.peer,
            proto=b"https" if transport.get_extra_info("sslcontext") else b"http",
            accept=self._accept,
            memo=self._host.heads,
        )
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        reader, turns = self._reader, self.turns
        if reader is None or turns.is_closed:
            return
        if turns.is_free and not self.write_paused:
            known = reader.known(data)
            if known is not None:
                request, body = known
                self._begin(request, body)
                return
        try:
            reader.feed(data)
        except BadRequest as error:
            self._refuse(error)
        self._timeouts.read(
            self._loop.time(), in_head=reader.in_head, awaits_body=self._awaits_body()
        )
        if turns.is_ending and turns.reading is not None:
            if turns.reading.request_done:
                self.close()
        else:
            self._advance()
        self.balance()

    def eof_received(self) -> bool:
        """The caller sends nothing more. What it asked for whole it gets, unless it has left."""
        turns = self.turns
        if self._half_close is None:
            active, reading = turns.active, turns.reading
            if active is None or not active.request_done or active.request.upgrade:
                return False
            if self._relayed:  # another gateway, which sends its end when its caller has left
                return False
            if turns.is_closed or self._transport.get_extra_info("sslcontext"):
                return False
            self._reader = None
            if reading is not None and not reading.request_done:
                turns.drop_last()
            sock = self._transport.get_extra_info("socket")
            self._half_close = HalfClose(sock.fileno(), waits=self._may_go_on, left=self.cut)
        return not turns.is_closed

    def resume_writing(self) -> None:
        self.write_paused = False
        self.context.bodies.taken(self)
        active = self.turns.active
        if active is not None and active.upstream is not None:
            active.upstream.resume_reading()
        self._advance()
        self.balance()

    def connection_lost(self, exc: Exception | None) -> None:
        self.turns.close()
        self._reader = None  # it knows this connection: nothing is left for the collector
        self._lost(self)
        if self.write_paused:
            self.context.bodies.taken(self)
        if self._lingering is not None:
            self._lingering.cancel()
        if self._half_close is not None:
            self._half_close.stop()
        active = self.turns.clear()
        self._forsake()
        if active is not None and active.caller is not None:
            active.caller_left()

    # Inside

    def _begin(self, request: RequestHead, body: bytes) -> None:
        """What most requests come to, by the shortest way: as `_accept` and `_advance` would."""
        exchange = self._host.exchange(self, request)
        self.turns.begin(exchange)
        if body:
            exchange.take_body(body)
        exchange.end_body(())
        self._host.begin(exchange, self._loop.time())

    def _accept(self, request: RequestHead) -> Exchange:
        ahead = self.turns.ahead
        if ahead >= self._limits.pipelined_most:
            raise BadRequest(
                f"{ahead} requests came ahead of their answers; wait for some answers."
            )
        self._timeouts.next_part()
        exchange = self._host.exchange(self, request)
        self.turns.came(exchange)
        return exchange

    def _refuse(self, error: BadRequest) -> None:
        """The bytes make no sense from here on: answers what came before, then this, then ends."""
        self._reader = None
        self._timeouts.next_part()
        turns, reading = self.turns, self.turns.reading
        whole = reading is None or reading.request_done
        if reading is not None and reading is turns.active and not whole:
            reading.fail(error)
            return
        turns.end_of_sense(error, whole=whole)
        if not whole:
            self._forsake()

    def _advance(self) -> None:
        """Starts the next request. Not entered twice: an answer given at once ends up here too."""
        if self._advancing:
            return
        self._advancing = True
        while self._next_may_begin():
            self._await(None)
            following = self.turns.take()
            if isinstance(following, BadRequest):
                self.write(last_answer(self.context, self.peer, following))
                self._linger()
            else:
                self._host.begin(following, self._loop.time())
        self._advancing = False

    def _next_may_begin(self) -> bool:
        turns = self.turns
        following = turns.next
        if following is None or self.write_paused:
            return False  # a caller that takes no answers is not owed more of them
        reading = turns.reading
        if reading is None or following is not reading:
            return True
        if reading is turns.let_in or not self._awaits_body():
            return True
        if turns.awaited is not reading:
            if not self._host.waits_for_body(reading):
                return True
            if reading.request.expects_continue and not reading.received:
                self.go_on()
        much = reading.received >= self._limits.read_ahead_bytes
        if much and self.context.bodies.lends(reading):
            return True
        self._await(reading)
        return False

    def _await(self, exchange: Exchange | None) -> Exchange | None:
        """From now on more of this one's body is waited for; None = of nobody's. Whose it was."""
        before = self.turns.awaited
        if before is not exchange:
            self.turns.forsake()
            if before is not None:
                self.context.bodies.arrived(before)
            if exchange is not None:
                self.turns.wait_for_body(exchange)
                self.context.bodies.expect(exchange)
        return before

    def _forsake(self) -> None:
        """Nothing more of what is awaited will come, or be wanted."""
        awaited = self._await(None)
        if awaited is not None:
            awaited.forget_body()

    def _awaits_body(self) -> bool:
        """Whether the request that is being read is not here far enough to be served."""
        reading = self.turns.reading
        if reading is None or reading.caller is None or reading is self.turns.active:
            return False
        return not reading.arrived

    def _linger(self) -> None:
        """Reads on for a moment: closing on unread bytes would take the answer away again. That
        nothing follows the caller is told at once, but for TLS, where it cannot be told alone."""
        self.turns.end()
        self._forsake()
        if self._lingering is None:
            self._lingering = self._loop.call_later(self._limits.linger_s, self.close)
            if self._transport.can_write_eof():
                self._transport.write_eof()
        self.balance()


def as_protocol(downstream: Downstream) -> asyncio.Protocol:
    """It is one, but for its base: compiled classes have only compiled ones (`compiled.py`)."""
    return cast("asyncio.Protocol", downstream)
