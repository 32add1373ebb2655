"""The way of a request to a replica: its body as it comes, and what may have to be sent again."""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.serving.gateway.admission.gate import (
    body_too_large,
    pickle_refused,
    takes_authorization,
)
from hotplate.serving.gateway.admission.internal_callers import why_refused
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.multipart import PartWatch
from hotplate.serving.gateway.http1.request_head import Field, RequestHead, for_owner, last_chunk
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.retry import ANSWERED, IDEMPOTENT, SENT, STARTED, UNSENT
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.proxy.upload import Upload
from hotplate.serving.gateway.replicas.call import Destination
from hotplate.serving.gateway.replicas.response_source import ResponseSource


class Forwarding(Upload):
    """One request on its way to a replica; an `Exchange` brings its answer back, too."""

    __slots__ = (
        "context",
        "dispatcher",
        "due_at",
        "parts",
        "phase",
        "plain",
        "prefix",
        "refused",
        "request_id",
        "sends",
        "upstream",
    )

    def __init__(self, caller: Caller, context: RouteContext, request: RequestHead) -> None:
        super().__init__(caller, request)
        self.context = context
        self.dispatcher = context.dispatcher
        self.request_id = request.given_id or context.new_id()
        self.prefix = b""
        """What goes before its target on the way to a replica."""
        self.upstream: ResponseSource | None = None
        route = self.dispatcher.route
        self.refused: GatewayError | None = why_refused(route, request) if route.internal else None
        """Why it is, whatever follows: its body is not waited for."""
        self.due_at = request.due_at
        """When its answer is due, where that was counted before; infinite = here it is counted."""
        self.phase: int = UNSENT
        self.plain = False
        """Our worker has said that its handler begins, which it does not say of a WebSocket's."""
        self.sends = 0
        self.parts: PartWatch | None = None
        """What looks at the parts of the body; None = it has none, or may have any."""

    # The caller's side

    def take_body(self, data: bytes) -> None:
        """More of the request's body. Once the caller's side has ended it is thrown away."""
        caller = self.caller
        if caller is None or self.refused is not None:
            return
        self.received += len(data)
        if self.received > self.dispatcher.route.body_limit_bytes:
            self.refuse(body_too_large(self.received, self.dispatcher.route))
        elif self.parts is not None and self.parts.has_pickle(data):
            self.refuse(pickle_refused())
        elif self.spool is not None or caller.awaits(self):
            error = self.context.bodies.keep(self, data)
            if error is not None:
                self.refuse(error)
        elif self.upstream is not None:
            self.upstream.write(self._framed(data))
            if self._kept:
                self._body.append(data)
                self._keep_within_bounds()
        else:
            self.hold(data)
            if self.ticket is not None and self.ticket.replica is None:
                self.dispatcher.grew(self, len(data))

    def refuse(self, error: GatewayError) -> None:
        caller, self.refused = self.caller, error
        if caller is None:
            return
        if caller.serves(self):
            self.fail(error)
            return
        self.forget_body()
        if caller.awaits(self):
            caller.let_in(self)

    def end_body(self, trailers: Sequence[Field]) -> None:
        self.request_done = True
        self._trailers = trailers
        if self.ticket is not None:
            self.ticket.body_received_at = self.dispatcher.loop.time()
        if self.upstream is not None and self.caller is not None and self.request.chunked:
            if self.spool is None:
                self.upstream.write(last_chunk(trailers))
            else:
                self.send_on()

    def take_tunnel(self, data: bytes) -> None:
        """Bytes of a caller that asked for another protocol; they wait for the replica's 101."""
        if self.caller is None:
            return
        if self.upstream is not None and self.upstream.tunnel:
            self.upstream.write(data)
        else:
            self.hold(data)

    @property
    def arrived(self) -> bool:
        """Whether it may go for a slot as it is, or is refused."""
        return self.request_done or self.refused is not None

    @property
    def receiving(self) -> bool:
        return self.upstream is not None and not self.request_done and not self.answered

    @property
    def answered(self) -> bool:
        """Whether the head of an answer has gone to the caller."""
        return self.phase == ANSWERED

    @property
    def can_be_left(self) -> bool:
        """Whether anything becomes free when its caller leaves: a place in the queue does, and a
        handler of ours is cancelled; any other server's goes on to its end and keeps its slot."""
        upstream, ticket = self.upstream, self.ticket
        if upstream is not None:
            return upstream.tells
        return ticket is None or ticket.replica is None

    @property
    def takes_interim_answers(self) -> bool:
        """Whether one may be written to its caller, and it matters whether the caller has left."""
        return not self.answered and self.can_be_left and not self.request.http10

    # The queue's side

    def enter_anew(self, due_at: float) -> None:
        self.due_at = min(self.due_at, due_at)
        if self.caller is not None:
            self.caller.begin_again(self.dispatcher.loop.time())

    def granted(self, replica: Destination, now: float) -> None:
        replica.dispatch(self, now)

    # The replica's side

    @property
    def is_wanted(self) -> bool:
        return self.caller is not None and self.ticket is not None

    def go(self, source: ResponseSource) -> None:
        caller, upstream = self.caller, source
        assert caller is not None, "an exchange without a caller is withdrawn, not sent"
        self.upstream = upstream
        self.sends += 1
        if upstream.tells:
            self.phase = SENT
        else:
            self.phase = STARTED
            caller.tell_started()
        request, body = self.request, self._body
        message = request.to_replica(
            upstream.host,
            self.request_id,
            with_authorization=takes_authorization(self.dispatcher.route, request),
            prefix=self.prefix,
        )
        if upstream.relays:
            message = for_owner(message, request.secret, self.due_at)
        if request.upgrade:
            upstream.write(message)
            return
        if self.spool is not None or self.buffered > self.dispatcher.limits.repeat_bytes:
            if self.spool is None:
                self.spool = self.context.bodies.spool()
            self.spool.begin_with(body)
            self._drop_body()
        elif request.chunked:
            message = b"".join([message, *map(self._framed, body)])
            if self.request_done:
                message += last_chunk(self._trailers)
        elif body:
            message = message + body[0] if len(body) == 1 else b"".join([message, *body])
        self.buffered = 0
        self._keep_within_bounds()
        upstream.write(message)
        self.send_on()
        if request.expects_continue and not (self.received or self.request_done):
            caller.go_on()
        if caller.read_paused or not self.request_done:
            caller.balance()

    def send_on(self) -> None:
        """Sends more of a long body, as far as the replica takes it."""
        upstream, spool = self.upstream, self.spool
        while upstream is not None and spool is not None and not upstream.write_paused:
            data = spool.take()
            if data:
                upstream.write(self._framed(data))
                continue
            spool.close()
            self.spool = spool = None
            if self.request_done and self.request.chunked:
                upstream.write(last_chunk(self._trailers))

    def started(self) -> None:
        if self.phase == SENT:
            self.phase = STARTED
            self.plain = True
            if self.caller is not None:
                self.caller.tell_started()
            if not self._may_run_twice:
                self._drop_body()

    def unreachable(self) -> None:
        if self.ticket is not None:
            self.dispatcher.repeat(self)

    # Inside

    def _disconnect(self) -> str:
        """Parts from its upstream, which has ended; the replica's address."""
        upstream, self.upstream = self.upstream, None
        return "?" if upstream is None else upstream.address

    @property
    def _may_run_twice(self) -> bool:
        """A request to change the protocol is a GET, and what it leads to is not."""
        if self.request.upgrade:
            return False
        return self.request.method in IDEMPOTENT or self.dispatcher.route.may_run_twice

    def _keep_within_bounds(self) -> None:
        if self.received > self.dispatcher.limits.repeat_bytes:
            self._drop_body()
