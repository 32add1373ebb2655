"""One request and its response, between a caller's connection and a replica's.

    caller ──take_body, end_body──► exchange ──► upstream     (a replica's connection, once granted)
    caller ◄──write, finished────── exchange ◄── on_*         (upstream's parser)

The two sides end independently. `caller` is None once the caller has its response, has left, or ran
out of time; the upstream goes on until the replica's response has ended, and only then does the
slot come back. That is *slot truth*: nothing that happens to a caller frees a slot. (A WebSocket's
handler may never end, so its slot is waited for no longer than 10 s: `abandoned.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hotplate.serving.gateway.admission.task_routes import TaskCall
from hotplate.serving.gateway.admission.terms import Terms
from hotplate.serving.gateway.errors import DeadlineExceeded, GatewayError, ReplicaFailed
from hotplate.serving.gateway.http1.fields import Field, last_chunk
from hotplate.serving.gateway.http1.request_head import WEBSOCKET, RequestHead
from hotplate.serving.gateway.http1.response_head import ResponseHead, with_line
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
from hotplate.serving.gateway.telemetry.version_answers import BROKEN, kind_of

SWITCHED: Final = 101
REFUSED: Final = 429


class Exchange(Forwarding):
    """Moves one request to a replica and its response back."""

    __slots__ = (
        "_out",
        "begun_at",
        "chunked_out",
        "cut_short",
        "keep_alive",
        "remaining_bytes",
        "sent_bytes",
        "status",
        "task",
    )

    def __init__(self, caller: Caller, context: RouteContext, request: RequestHead) -> None:
        super().__init__(caller, context, request)
        self.task: TaskCall | None = None
        """What it asks of a task that the platform keeps; only `TaskExchange` sets it."""
        self.keep_alive = request.keep_alive and not request.upgrade
        """Whether the caller's connection stays open after the response."""
        self.begun_at = 0.0
        """When its turn on the caller's connection came."""
        self.status = 0
        """The response's status; 0 = there is no response yet."""
        self.sent_bytes = 0
        """Bytes of the response's body that were passed on."""
        self.chunked_out = False
        self.cut_short = False
        """Whether the caller left during the response."""
        self.remaining_bytes: int | None = None
        """Bytes of the response that are still to come; None = unknown."""
        self._out: list[bytes] = []

    def serve_elsewhere(self, terms: Terms, *, ready: bool) -> bool:
        """Has the request answered without a replica, if that is possible; its turn has come, on
        these terms. `ready` says whether a replica could answer. Returns whether it did."""
        return False

    # The caller's side

    def caller_left(self) -> None:
        self.caller = None
        self.cut_short = self.answered
        if not self.answered:
            self.context.counters.caller_left()
        self.note_end(self.context.loop.time())
        self._give_up()

    def fail(self, error: GatewayError) -> None:
        """Ends the request for the caller: with the error, or by closing if a response has
        begun."""
        caller, self.caller = self.caller, None
        if caller is not None:
            if self.upstream is not None and isinstance(error, DeadlineExceeded):
                self.count_answer(BROKEN)
            self._give_up()
            self._answer_with(caller, error)

    def note_end(self, now: float) -> None:
        """The caller has its response, or gets nothing more of it."""
        total_s = now - self.begun_at
        if self.answered:
            self.context.counters.totals.add(total_s)
        if self.context.access_log is not None:
            self._log(total_s)

    # The replica's side

    @property
    def is_sample(self) -> bool:
        """False if it failed, was refused, or lasted as long as its caller wanted."""
        status = self.status
        return not self.cut_short and status != SWITCHED and (status < 500 and status != REFUSED)

    def on_head(self, head: ResponseHead) -> None:
        caller = self.caller
        if caller is None:
            return
        keep_alive = self.keep_alive and self.request_done and not caller.draining
        data, self.chunked_out, self.keep_alive = head.to_caller(
            self.request, self.request_id, keep_alive=keep_alive
        )
        data = _with_version(data, head, self)
        self.phase = ANSWERED
        if not self.request.upgrade:
            self._drop_body()
        self.remaining_bytes = head.answer_bytes
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
        if self.remaining_bytes is not None:
            self.remaining_bytes -= len(data)
        if self.chunked_out:
            self._out.append(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._out.append(data)

    def flush(self) -> None:
        """Passes on what has come of the response, and pauses the replica if the caller is slow."""
        if not self._out:
            return
        caller = self.caller
        if caller is not None:
            caller.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            if caller.write_paused and self.upstream is not None:
                self.upstream.pause_reading()
        self._out.clear()
        if self.remaining_bytes == 0:
            self._detach_caller()

    def on_end(self, trailers: Sequence[Field] = ()) -> None:
        """The replica's response has ended, and with it the use of the slot."""
        self.upstream = None
        if self.answered:
            self.count_answer(kind_of(self.status))
        caller, self.caller = self.caller, None
        if caller is not None:
            if self.chunked_out:
                self._out.append(last_chunk(trailers))
            if self._out:
                caller.write(b"".join(self._out))
            self._response_sent(caller)
        self._ended()

    def on_response(self, head: ResponseHead, body: bytes, now: float) -> None:
        """The same as `on_head`, `on_body` and `on_end`, by the shortest way: most responses come
        whole."""
        self.upstream = None
        self.forget_body()
        caller, self.caller = self.caller, None
        if caller is not None:
            keep_alive = self.keep_alive and self.request_done and not caller.draining
            data, _, self.keep_alive = head.to_caller(
                self.request, self.request_id, keep_alive=keep_alive
            )
            data = _with_version(data, head, self)
            self.phase = ANSWERED
            self.status = head.status
            self.count_answer(kind_of(head.status))
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
            self._note_hangup(upstream)
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

    def lost(self, *, unread: bool, silent: bool, returned: bool = False) -> None:
        address = self._disconnect()
        if returned:
            self.sends -= 1  # it was not tried
        if unread:
            self.phase = UNSENT
        elif silent and self.phase == SENT and not self.passed:
            self.phase = STARTED
        if self.caller is None:
            if self.answered:  # it has all of the response, or left in the middle of it
                self.count_answer(kind_of(self.status))
            self._ended()
            return
        unknown = not self.answered and (silent or self.phase == STARTED)
        if unknown and self.passed and self.ask_back():
            return
        if not unread:
            self.count_answer(BROKEN)
        why_not = why_not_again(
            self.phase,
            may_run_twice=self._may_run_twice,
            sends=self.sends,
            kept=self._kept,
        )
        if why_not:
            replica = f"the replica at {address}"
            whose = "the gateway that has its queue" if self.relayed else replica
            self._fail_upstream(
                f"{whose} ended the connection before its response was complete; {why_not}."
            )
        else:
            self.buffered = self.received
            if not self._may_run_twice:
                self.caller.announce_wait()
            self.dispatcher.retry(self)

    def on_invalid_response(self, what: str) -> None:
        address = self._disconnect()
        if self.caller is not None:
            self.count_answer(BROKEN)
        self._fail_upstream(f"the replica at {address} answered what is not HTTP/1.1 ({what}).")

    # Inside

    def _fail_upstream(self, what: str) -> None:
        caller, self.caller = self.caller, None
        if caller is not None:
            self.forget_body()
            self._answer_with(caller, ReplicaFailed(f"{self.dispatcher.route.name}: {what}"))
        self._ended()

    def _detach_caller(self) -> None:
        """The caller has the whole response; its handler goes on and keeps the slot."""
        caller, self.caller = self.caller, None
        if caller is not None:
            self._detach()
            self._response_sent(caller)

    def _ended(self) -> None:
        """The replica is done with the request."""
        self.forget_body()  # its ticket may be kept for a while (`deadlines.py`)
        if self.request.upgrade:
            self.context.hangups.ended(self)
        self.dispatcher.release(self, self.context.loop.time())

    def _response_sent(self, caller: Caller) -> None:
        """The caller has the whole response."""
        now = self.context.loop.time()
        self.note_end(now)
        caller.finished(now)

    def _answer_with(self, caller: Caller, error: GatewayError) -> None:
        self.context.refused(error)
        if self.answered:
            self.note_end(self.context.loop.time())
            caller.abort()
        else:
            self.keep_alive = self.keep_alive and self.request_done
            caller.answer_error(error)

    def _give_up(self) -> None:
        """No caller waits for the response any longer. A request that was sent keeps its slot until
        the replica has ended; our worker's handler is notified, and its connection ends with it."""
        upstream = self.upstream
        if upstream is not None and upstream.worker:
            self.forget_body()
            self._out.clear()
            upstream.half_close()
            self._note_hangup(upstream)
        else:
            self._detach()

    def _detach(self) -> None:
        """The caller's side has ended. A request that was sent keeps its slot until the replica has
        ended."""
        cut = not self.sent_whole
        self.forget_body()
        self._out.clear()
        upstream = self.upstream
        if upstream is None:
            self.dispatcher.withdraw(self)
        elif upstream.relays:
            upstream.abandon()
        else:
            if upstream.tunnel or cut:
                upstream.half_close()
            else:
                upstream.resume_reading()
            self._note_hangup(upstream)

    def _note_hangup(self, upstream: ResponseSource) -> None:
        """The caller has gone and the replica was notified: the slot of a WebSocket is not waited
        for without end. Any server has made it a WebSocket with its 101; at our worker it is one
        before that, too, unless the worker said that a plain handler began."""
        asked_for = (
            upstream.worker and self.request.upgrade == WEBSOCKET and not self.handler_announced
        )
        if upstream.tunnel or asked_for:
            self.context.hangups.caller_gone(self)

    def _log(self, total_s: float) -> None:
        """Writes the line of the access log. Another gateway's callers are in that gateway's
        log."""
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


def _with_version(data: bytes, head: ResponseHead, one: Exchange) -> bytes:
    line = one.context.version_line if one.version_line is None else one.version_line
    return with_line(data, line) if line and not head.names_version else data
