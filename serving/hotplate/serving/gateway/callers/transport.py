"""The sending half of a caller's connection: its pauses, its end, and its time limits.

`downstream.py` knows to which request the bytes belong.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import cast

from hotplate.machine.dead_peers import has_hung_up, keep_taking
from hotplate.serving.gateway.callers.own_responses import last_answer
from hotplate.serving.gateway.callers.timeouts import Timeouts
from hotplate.serving.gateway.callers.turns import Turns
from hotplate.serving.gateway.errors import GatewayError, RequestSlow
from hotplate.serving.gateway.http1.response_reader import STARTED, WAITS
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.replicas.call import Call


class CallerTransport(Caller):
    """Writes responses, and closes the connections of callers that are idle, too slow, or gone."""

    def __init__(self, context: RouteContext, *, relayed: bool) -> None:
        super().__init__()
        self.context = context
        self.peer = b"unknown"
        """The caller's address."""
        self.turns: Turns[Exchange] = Turns()
        self._relayed = relayed
        self._limits = context.dispatcher.limits
        self._timeouts = Timeouts(self._limits)
        self._loop = context.loop
        self._transport: asyncio.Transport
        self._blocked = context.bodies
        """What knows that the caller takes nothing more of its response."""
        self._paused_at = 0.0
        self._idle_since = self._loop.time()

    # For the exchange

    def serves(self, call: Call) -> bool:
        return self.turns.active is call

    def awaits(self, call: Call) -> bool:
        return self.turns.awaited is call

    def write(self, data: bytes) -> None:
        if not self.turns.is_closed:
            self._transport.write(data)

    def announce_start(self) -> None:
        if self._relayed:
            self._write_at_once(STARTED)

    def announce_wait(self) -> None:
        if self._relayed:
            self._write_at_once(WAITS)

    def silent_s(self, now: float) -> float:
        return 0.0 if self.read_paused else self._timeouts.silent_s(now)

    def close(self) -> None:
        if not self.closed:
            self.turns.close()
            self._idle_since = self._loop.time()
            self._transport.close()

    def abort(self) -> None:
        self.turns.close()
        self._transport.abort()

    def tunnel_opened(self) -> None:
        if not self._relayed:
            keep_taking(self._transport.get_extra_info("socket"), self._limits.take_s)
        self.adjust_reading()

    def abort_if_slow_reader(self, now: float) -> None:
        active = self.turns.active
        has_slot = active is not None and active.ticket is not None
        if has_slot and self._timeouts.takes_little(now, self.unsent_bytes):
            self.abort()

    # For the route

    def turn_away(self, error: GatewayError) -> None:
        """Answers with the error before anything was read, and closes."""
        self.write(last_answer(self.context, self.peer, error))
        self.close()

    def close_if_idle(self, for_s: float = 0.0) -> None:
        """Closes the connection if no request has been served on it for `for_s`."""
        idle_s = self._loop.time() - self._idle_since
        if self.turns.is_free and not self._timeouts.arriving and idle_s >= for_s:
            self.close()

    # What there is

    @property
    def closed(self) -> bool:
        """Whether nothing more is written; what was written may still be on its way."""
        return self.turns.is_closed

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and that the caller's machine has not taken."""
        return self._transport.get_write_buffer_size()

    # Inside

    def _write_at_once(self, data: bytes) -> None:
        """Past the loop, which may write to a replica first what it was given later (uvloop's keeps
        connections that have something to write in a set)."""
        if self.turns.is_closed:
            return
        written = 0
        if not self.unsent_bytes:
            with suppress(OSError):  # the loop meets it too
                written = os.write(self._transport.get_extra_info("socket").fileno(), data)
        if written < len(data):
            self._transport.write(data[written:])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].encode() if peer else b"unknown"

    def pause_writing(self) -> None:
        self.write_paused = True
        self._timeouts.full(self._loop.time(), self.unsent_bytes)
        active = self.turns.active
        self._blocked = self.context.bodies if active is None else active.context.bodies
        self._blocked.write_blocked(self)

    def _pause_reading(self, paused: bool) -> None:
        if paused == self.read_paused or self._transport.is_closing():
            return
        self.read_paused = paused
        if paused:
            self._paused_at = self._loop.time()
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            self._timeouts.resumed(self._loop.time())

    def _has_gone(self, now: float) -> bool:
        """Whether the caller has taken nothing for too long, or has left behind bytes that the
        replica at the other end of a tunnel does not take for too long."""
        if self.write_paused and self._timeouts.takes_nothing(now, self.unsent_bytes):
            return True
        active = self.turns.active
        upstream = None if active is None else active.upstream
        if not self.read_paused or upstream is None or not upstream.tunnel:
            return False
        stalled = now - self._paused_at >= self._limits.abandon_s
        return stalled and has_hung_up(self._transport.get_extra_info("socket"))

    def _slow(self, now: float) -> RequestSlow | None:
        """Why the caller's time to send what it announced is over; None = it is not."""
        if self.read_paused:
            return None
        active = self.turns.active
        sending = active is not None and active is self.turns.reading and active.receiving
        return self._timeouts.slow(now, sending=sending)

    def _may_send_continue(self) -> bool:
        """Whether an interim response may be written now, and it matters whether the caller has
        left. While a response is being written, a failed write shows that."""
        active = self.turns.active
        return active is not None and active.takes_interim_responses and not self.unsent_bytes
