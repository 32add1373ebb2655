"""A caller's connection: submits its requests one at a time and writes their responses.

    bytes ──► RequestReader ──► Turns ──► exchange, as its turn comes ──► a slot, a replica
    bytes ◄── CallerTransport ◄────────── exchange

The reader (`http1/request_reader.py`) turns bytes into requests, `turns.py` says which of them is
served, and the route (`host.py`) makes an exchange of each and admits it. A request begins when it
is whole, or earlier if `proxy/body_gate.py` allows that. Reading pauses while more comes than can
be passed on (`adjust_reading`).
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
        """`opened` and `closed` are called with the connection as it is made and lost; `relayed`:
        it is another gateway's, for the requests of its callers."""
        super().__init__(host.context, relayed=relayed)
        self._host = host
        self._opened = opened
        self._lost = closed
        self._reader: RequestReader | None = None
        """None before the connection is made, and after bytes that are no HTTP."""
        self._continue_sent_for: Exchange | None = None
        """The request for whose body `100 Continue` was sent last."""
        self._advancing = False
        self._half_close: HalfClose | None = None
        """Set when the caller sends nothing more but may wait for responses."""
        self._lingering: asyncio.TimerHandle | None = None

    # For the exchange

    @property
    def draining(self) -> bool:
        return self._host.draining and not self.turns.ahead

    def send_continue(self) -> None:
        if self._continue_sent_for is not self.turns.reading:
            self._continue_sent_for = self.turns.reading
            self.write(CONTINUE)
            self._timeouts.resumed(self._loop.time())

    def answer_error(self, error: GatewayError) -> None:
        self.answer_local(Local(error_body(error), error.status), error.retry_after_s)

    def answer_local(self, local: Local, retry_after_s: float | None = None) -> None:
        exchange = self.turns.active
        assert exchange is not None, "only the one whose turn it is gets an answer"
        exchange.keep_alive = exchange.keep_alive and exchange.request_done and not self.draining
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
                self.adjust_reading()
        elif exchange.request_done:
            self.close()
        else:
            self._linger()

    def begin_early(self, call: Call) -> None:
        self.turns.early = self.turns.awaited
        self._advance()

    def submit_again(self, now: float) -> None:
        if self.turns.active is not None:
            self._host.begin(self.turns.active, now)

    def adjust_reading(self) -> None:
        exchange = self.turns.reading
        full = self.turns.ahead >= self._limits.pipelined
        if exchange is not None and exchange.caller is not None:
            upstream = exchange.upstream
            if not self.awaits(exchange):  # a body that is waited for is kept at any length
                full = full or exchange.buffered >= self._limits.read_ahead_bytes
            full = full or (upstream is not None and upstream.write_paused)
        self._pause_reading(full)

    # For the route

    def sweep(self, now: float) -> None:
        """Closes a connection that has been idle for too long, or whose caller sends or takes too
        slowly."""
        limits = self._limits
        idle_s = now - self._idle_since
        if self.closed:
            if idle_s >= limits.take_s:
                self._transport.abort()
        elif self._has_gone(now):
            self.abort()
        elif self._reader is not None and (slow := self._slow(now)) is not None:
            self._refuse(slow)
            self._advance()
        elif self.turns.active is None and not self._timeouts.arriving:
            if idle_s >= limits.idle_s:
                self.close()
            elif self._reader is not None:
                self._reader.drop_parser()

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
        self.adjust_reading()

    def eof_received(self) -> bool:
        """The caller sends nothing more. It gets the responses to all whole requests, unless it has
        left."""
        turns = self.turns
        if self._half_close is None:
            active, reading = turns.active, turns.reading
            if active is None or not active.request_done or active.request.upgrade:
                return False
            if self._relayed:  # another gateway, which does so when its caller has left
                return False
            if turns.is_closed or self._transport.get_extra_info("sslcontext"):
                return False
            self._reader = None
            if reading is not None and not reading.request_done:
                turns.drop_last()
            sock = self._transport.get_extra_info("socket")
            self._half_close = HalfClose(
                sock.fileno(), may_ask=self._may_send_continue, on_gone=self.abort
            )
        return not turns.is_closed

    def resume_writing(self) -> None:
        self.write_paused = False
        self._blocked.write_unblocked(self)
        active = self.turns.active
        if active is not None and active.upstream is not None:
            active.upstream.resume_reading()
        self._advance()
        self.adjust_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.turns.close()
        self._reader = None  # it refers to this connection; no cycle is left to the collector
        self._lost(self)
        if self.write_paused:
            self._blocked.write_unblocked(self)
        if self._lingering is not None:
            self._lingering.cancel()
        if self._half_close is not None:
            self._half_close.stop()
        active = self.turns.clear()
        self._stop_awaiting()
        if active is not None and active.caller is not None:
            active.caller_left()

    # Inside

    def _begin(self, request: RequestHead, body: bytes) -> None:
        """The same as `_accept` and `_advance`, by the shortest way: most requests come whole."""
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
        self.turns.add(exchange)
        return exchange

    def _refuse(self, error: BadRequest) -> None:
        """What comes is not HTTP from here on: answers the requests before it, then this, and
        closes."""
        self._reader = None
        self._timeouts.next_part()
        turns, reading = self.turns, self.turns.reading
        whole = reading is None or reading.request_done
        if reading is not None and reading is turns.active and not whole:
            reading.fail(error)
            return
        turns.reject_rest(error, whole=whole)
        if not whole:
            self._stop_awaiting()

    def _advance(self) -> None:
        """Starts the next request. It is not reentered: a request that is answered at once calls it
        too."""
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
        if reading is turns.early or not self._awaits_body():
            return True
        if turns.awaited is not reading:
            if not self._host.waits_for_body(reading):
                return True
            if reading.request.expects_continue and not reading.received:
                self.send_continue()
        much = reading.received >= self._limits.read_ahead_bytes
        if much and reading.context.bodies.lends(reading):
            return True
        self._await(reading)
        return False

    def _await(self, exchange: Exchange | None) -> Exchange | None:
        """Waits for more of this request's body from now on; None = for no body. Returns the
        request whose body was waited for before."""
        before = self.turns.awaited
        if before is not exchange:
            self.turns.stop_waiting()
            if before is not None:
                before.context.bodies.forget(before)
            if exchange is not None:
                self.turns.wait_for_body(exchange)
                exchange.context.bodies.expect(exchange)
        return before

    def _stop_awaiting(self) -> None:
        """No body is waited for any longer: no more of it will come, or is wanted."""
        awaited = self._await(None)
        if awaited is not None:
            awaited.forget_body()

    def _awaits_body(self) -> bool:
        """Whether too little of the request that is being read has come for it to be served."""
        reading = self.turns.reading
        if reading is None or reading.caller is None or reading is self.turns.active:
            return False
        return not reading.may_begin

    def _linger(self) -> None:
        """Reads on for a moment: a close with unread bytes would discard the response on its way.
        The caller is notified at once that nothing follows, except over TLS, which has no way to do
        so."""
        self.turns.end()
        self._stop_awaiting()
        if self._lingering is None:
            self._lingering = self._loop.call_later(self._limits.linger_s, self.close)
            if self._transport.can_write_eof():
                self._transport.write_eof()
        self.adjust_reading()


def as_protocol(downstream: Downstream) -> asyncio.Protocol:
    """It is a protocol but for its base class, because compiled classes have compiled bases only
    (`compiled.py`)."""
    return cast("asyncio.Protocol", downstream)
