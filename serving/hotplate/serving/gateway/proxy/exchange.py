"""One request and its answer, between a caller's connection and a replica's.

    caller ──take_body, end_body──► exchange ──► upstream     (a replica's connection, once granted)
    caller ◄──write, finished────── exchange ◄── on_*         (upstream's parser)

The two sides end on their own. `caller` is None once the caller has its answer, or has left, or its
time was over; the upstream goes on until the replica's answer has ended, and only then is the slot
given back. That is the whole of *slot truth*: nothing that happens to a caller frees a slot. (A
WebSocket's handler may never end, so it is not waited for longer than 10 s: `abandoned.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hotplate.serving.gateway.admission.task_routes import TaskCall
from hotplate.serving.gateway.admission.terms import Terms
from hotplate.serving.gateway.errors import GatewayError, ReplicaFailed
from hotplate.serving.gateway.http1.request_head import WEBSOCKET, Field, RequestHead, last_chunk
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.forwarding import Forwarding
from hotplate.serving.gateway.proxy.retry import (
    ANSWERED,
    SENT,
    STARTED,
    UNSENT,
    why_not_again,
)
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.replicas.response_source import ResponseSource
from hotplate.serving.gateway.telemetry.access_log import Entry

SWITCHED: Final = 101
REFUSED: Final = 429


class Exchange(Forwarding):
    """Moves one request to a replica and its answer back."""

    __slots__ = (
        "_out",
        "begun_at",
        "chunked_out",
        "keep_alive",
        "left",
        "left_bytes",
        "sent_bytes",
        "status",
        "task",
    )

    def __init__(self, caller: Caller, context: RouteContext, request: RequestHead) -> None:
        super().__init__(caller, context, request)
        self.task: TaskCall | None = None
        """What it asks of a task that the platform keeps; `TaskExchange` alone has it."""
        self.keep_alive = request.keep_alive and not request.upgrade
        """Whether the caller's connection stays after the answer."""
        self.begun_at = 0.0
        """When its turn on the caller's connection had come."""
        self.status = 0
        """What was answered; 0 = nothing yet."""
        self.sent_bytes = 0
        """Of the answer's body, passed on so far."""
        self.chunked_out = False
        self.left = False
        """Its caller has left in the middle of the answer."""
        self.left_bytes: int | None = None
        """Of the answer, still to come for the caller; None = as long as it lasts."""
        self._out: list[bytes] = []

    def serve_elsewhere(self, terms: Terms, *, ready: bool) -> bool:
        """Has it answered by somebody else than a replica, if it is to be; its turn has come, on
        these terms. `ready` says whether a replica could answer."""
        return False

    # The caller's side

    def caller_left(self) -> None:
        self.caller = None
        self.left = self.answered
        if not self.answered:
            self.context.counters.caller_left()
        self.note_end(self.context.loop.time())
        self._give_up()

    def fail(self, error: GatewayError) -> None:
        """Ends it for the caller: with the error, or by a cut if an answer has begun."""
        caller, self.caller = self.caller, None
        if caller is not None:
            self._give_up()
            self._end_with(caller, error)

    def note_end(self, now: float) -> None:
        """The caller has its answer, or nothing more of it: it left, or was cut off."""
        total_s = now - self.begun_at
        if self.answered:
            self.context.counters.totals.add(total_s)
        if self.context.access_log is not None:
            self._log(total_s)

    # The replica's side

    @property
    def says_of_replica(self) -> bool:
        """Not where it failed, was refused, or lasted as long as its caller liked."""
        status = self.status
        return not self.left and status != SWITCHED and (status < 500 and status != REFUSED)

    def on_head(self, head: ResponseHead) -> None:
        caller = self.caller
        if caller is None:
            return
        keep_alive = self.keep_alive and self.request_done and not caller.parting
        data, self.chunked_out, self.keep_alive = head.to_caller(
            self.request, self.request_id, keep_alive=keep_alive
        )
        self.phase = ANSWERED
        if not self.request.upgrade:
            self._drop_body()
        self.left_bytes = head.answer_bytes
        # As in BentoML, the time limit is one to the first byte: a stream may last.
        self.dispatcher.response_began(self)
        self._out.append(data)
        self.status = head.status
        counters = self.context.counters
        counters.answered(head.status)
        counters.first_bytes.add(self.context.loop.time() - self.begun_at)

    def on_body(self, data: bytes) -> None:
        if self.caller is None:
            return
        self.sent_bytes += len(data)
        if self.left_bytes is not None:
            self.left_bytes -= len(data)
        if self.chunked_out:
            self._out.append(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._out.append(data)

    def flush(self) -> None:
        """Passes on what has come of the answer, and slows the replica if the caller is slow."""
        if not self._out:
            return
        caller = self.caller
        if caller is not None:
            caller.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            if caller.write_paused and self.upstream is not None:
                self.upstream.pause_reading()
        self._out.clear()
        if self.left_bytes == 0:
            self._part()

    def on_end(self, trailers: Sequence[Field] = ()) -> None:
        """The replica's answer has ended, and with it the slot's use."""
        self.upstream = None
        caller, self.caller = self.caller, None
        if caller is not None:
            if self.chunked_out:
                self._out.append(last_chunk(trailers))
            if self._out:
                caller.write(b"".join(self._out))
            self._answered(caller)
        self._ended()

    def on_response(self, head: ResponseHead, body: bytes, now: float) -> None:
        """What most answers come to, by the shortest way."""
        self.upstream = None
        self.forget_body()
        caller, self.caller = self.caller, None
        if caller is not None:
            keep_alive = self.keep_alive and self.request_done and not caller.parting
            data, _, self.keep_alive = head.to_caller(
                self.request, self.request_id, keep_alive=keep_alive
            )
            self.phase = ANSWERED
            self.status = head.status
            self.sent_bytes = len(body)
            total_s = now - self.begun_at
            self.context.counters.answered_at_once(head.status, total_s)
            if self.context.access_log is not None:
                self._log(total_s)
            caller.write(data + body)
            caller.finished(now)
        elif self.request.upgrade:
            self.context.hangups.ended(self)
        self.dispatcher.release(self, now)

    def open_tunnel(self, first: bytes) -> None:
        caller, upstream = self.caller, self.upstream
        assert upstream is not None, "only a connected exchange is answered"
        if caller is None:
            upstream.half_close()
            self._hang_up(upstream)
            return
        if first:
            self._out.append(first)
        self.flush()
        if self._body:
            upstream.write(b"".join(self._body))
            self._drop_body()
        self.dispatcher.response_began(self)
        caller.tunnel_opened()

    def on_tunnel(self, data: bytes) -> None:
        if self.caller is not None:
            self._out.append(data)
            self.flush()

    def tunnel_closed(self) -> None:
        self.upstream = None
        caller, self.caller = self.caller, None
        if caller is not None:
            caller.close()
        self._ended()

    def lost(self, *, unread: bool, silent: bool) -> None:
        address = self._disconnect()
        if unread:
            self.phase = UNSENT
        elif silent and self.phase == SENT:
            self.phase = STARTED
        if self.caller is None:
            self._ended()
            return
        why_not = why_not_again(
            self.phase,
            may_run_twice=self._may_run_twice,
            sends=self.sends,
            kept=self._kept,
        )
        if why_not:
            self._end_badly(
                f"the replica at {address} ended the connection before its answer was complete; "
                f"{why_not}."
            )
        else:
            self.buffered = self.received
            self.dispatcher.repeat(self)

    def on_nonsense(self, what: str) -> None:
        address = self._disconnect()
        self._end_badly(f"the replica at {address} answered what is not HTTP/1.1 ({what}).")

    # Inside

    def _end_badly(self, what: str) -> None:
        caller, self.caller = self.caller, None
        if caller is not None:
            self.forget_body()
            self._end_with(caller, ReplicaFailed(f"{self.dispatcher.route.name}: {what}"))
        self._ended()

    def _part(self) -> None:
        """The caller has the answer; its handler goes on, and with it the slot's use."""
        caller, self.caller = self.caller, None
        if caller is not None:
            self._let_go()
            self._answered(caller)

    def _ended(self) -> None:
        """The replica is done with it."""
        self.forget_body()  # its ticket may be kept for a while (`deadlines.py`)
        if self.request.upgrade:
            self.context.hangups.ended(self)
        self.dispatcher.release(self, self.context.loop.time())

    def _answered(self, caller: Caller) -> None:
        """The caller has the whole answer."""
        now = self.context.loop.time()
        self.note_end(now)
        caller.finished(now)

    def _end_with(self, caller: Caller, error: GatewayError) -> None:
        self.context.counters.refused(error.code)
        if self.answered:
            self.note_end(self.context.loop.time())
            caller.cut()
        else:
            self.keep_alive = self.keep_alive and self.request_done
            caller.answer_error(error)

    def _give_up(self) -> None:
        """Nobody waits for the answer any more. What was sent keeps its slot until the replica has
        ended; our worker's handlers are told, and its connection ends with them."""
        upstream = self.upstream
        if upstream is not None and upstream.worker:
            self.forget_body()
            self._out.clear()
            upstream.half_close()
            self._hang_up(upstream)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """The caller's side is over. What was sent keeps its slot until the replica has ended."""
        cut = not self.sent_whole
        self.forget_body()
        self._out.clear()
        upstream = self.upstream
        if upstream is None:
            self.dispatcher.withdraw(self)
        elif upstream.relays:
            upstream.leave()
        else:
            if upstream.tunnel or cut:
                upstream.half_close()
            else:
                upstream.resume_reading()
            self._hang_up(upstream)

    def _hang_up(self, upstream: ResponseSource) -> None:
        """Its caller has gone and the replica was told: a WebSocket's slot is not waited for for
        ever. Any server has made it one with its 101; our worker also without, unless it said that
        a plain handler began."""
        asked_for = upstream.worker and self.request.upgrade == WEBSOCKET and not self.plain
        if upstream.tunnel or asked_for:
            self.context.hangups.caller_gone(self)

    def _log(self, total_s: float) -> None:
        """Writes the line of the access log; another gateway's callers are in that one's log."""
        log, request, ticket = self.context.access_log, self.request, self.ticket
        if log is None or not request.peer:
            return
        replica = None if ticket is None else ticket.replica
        log.note(
            Entry(
                self.dispatcher.route.name,
                request.peer,
                request_id=self.request_id,
                method=request.method,
                path=request.path,
                status=self.status,
                size_bytes=self.sent_bytes,
                wait_s=ticket.granted_at - ticket.arrived_at if ticket and replica else None,
                total_s=total_s,
                replica="" if replica is None else replica.id,
            )
        )
