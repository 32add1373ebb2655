"""The way of a request to a replica: its body as it comes, and what may have to be sent again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf

from hotplate.serving.gateway.admission.gate import (
    body_too_large,
    pickle_refused,
    takes_authorization,
)
from hotplate.serving.gateway.admission.internal_callers import why_refused
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.fields import Field, last_chunk
from hotplate.serving.gateway.http1.multipart import PartWatch
from hotplate.serving.gateway.http1.request_head import RequestHead, for_owner
from hotplate.serving.gateway.protocol.headers import PASSED
from hotplate.serving.gateway.proxy.caller import Caller
from hotplate.serving.gateway.proxy.retry import ANSWERED, IDEMPOTENT, SENT, STARTED, UNSENT
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.proxy.upload import Upload
from hotplate.serving.gateway.replicas.call import Destination
from hotplate.serving.gateway.replicas.response_source import ResponseSource


class Forwarding(Upload):
    """One request on its way to a replica; `Exchange` adds the way back of the response."""

    __slots__ = (
        "context",
        "dispatcher",
        "due_at",
        "handler_announced",
        "parts",
        "passed",
        "phase",
        "prefix",
        "refused",
        "request_id",
        "sends",
        "upstream",
        "version_line",
    )

    def __init__(self, caller: Caller, context: RouteContext, request: RequestHead) -> None:
        super().__init__(caller, request)
        self.context = context
        self.dispatcher = context.dispatcher
        self.request_id = request.given_id or context.new_id()
        self.prefix = b""
        """A prefix of its target on the way to a replica."""
        self.upstream: ResponseSource | None = None
        route = self.dispatcher.route
        self.refused: GatewayError | None = why_refused(route, request) if route.internal else None
        """Why it is refused in any case, so that its body is not waited for; None = it is not."""
        self.due_at = request.due_in_s
        if self.due_at < inf:
            self.due_at += context.loop.time()
        """When its response is due, if another gateway has determined that; infinite = this one
        does."""
        self.phase: int = UNSENT
        self.handler_announced = False
        """Our worker has said that the handler begins, which it does not say of a WebSocket's."""
        self.sends = 0
        self.passed = b""
        """By what it can be had back from the owner of the route to which it was sent."""
        self.version_line: bytes | None = None
        """The header line with the version of its response, as it was when it got its slot: this
        gateway may lose the route before the response has come. None = it had none."""
        self.parts: PartWatch | None = None
        """What checks the parts of the body; None = there are none, or they may be anything."""

    def move_to(self, context: RouteContext) -> None:
        """It goes to the replicas of another route, before it has a place in a queue."""
        self.context = context
        self.dispatcher = context.dispatcher

    # The caller's side

    def take_body(self, data: bytes) -> None:
        """More of the request's body. It is dropped once the caller's side has ended."""
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
            self.buffer(data)
            if self.ticket is not None and self.ticket.replica is None:
                self.dispatcher.body_grew(self, len(data))

    def refuse(self, error: GatewayError) -> None:
        caller, self.refused = self.caller, error
        if caller is None:
            return
        if caller.serves(self):
            self.fail(error)
            return
        self.forget_body()
        if caller.awaits(self):
            caller.begin_early(self)

    def end_body(self, trailers: Sequence[Field]) -> None:
        self.request_done = True
        self._trailers = trailers
        if self.ticket is not None:
            self.ticket.body_received_at = self.dispatcher.loop.time()
        if self.upstream is not None and self.caller is not None and self.request.chunked:
            if self.spool is None:
                self.upstream.write(last_chunk(trailers))
            else:
                self.send_more()

    def take_tunnel(self, data: bytes) -> None:
        """Bytes from a caller that asked for another protocol; they wait for the replica's 101."""
        if self.caller is None:
            return
        if self.upstream is not None and self.upstream.tunnel:
            self.upstream.write(data)
        else:
            self.buffer(data)

    @property
    def may_begin(self) -> bool:
        """Whether it needs no more of its body to go for a slot, or is refused."""
        return self.request_done or self.refused is not None

    @property
    def receiving(self) -> bool:
        return self.upstream is not None and not self.request_done and not self.answered

    @property
    def answered(self) -> bool:
        """Whether the head of a response has gone to the caller."""
        return self.phase == ANSWERED

    @property
    def is_cancellable(self) -> bool:
        """Whether it frees anything when its caller leaves: a place in the queue, or the slot of
        our worker, whose handler is cancelled. Any other server's handler goes on and keeps its
        slot."""
        upstream, ticket = self.upstream, self.ticket
        if upstream is not None:
            return upstream.announces_start
        return ticket is None or ticket.replica is None

    @property
    def takes_interim_responses(self) -> bool:
        """Whether an interim response may be written, and it matters whether the caller has
        left."""
        return not self.answered and self.is_cancellable and not self.request.http10

    # The queue's side

    def resubmit(self, due_at: float) -> None:
        self.due_at = min(self.due_at, due_at)
        if self.caller is not None:
            self.caller.submit_again(self.dispatcher.loop.time())

    def granted(self, replica: Destination, now: float) -> None:
        self.version_line = self.context.version_line
        replica.dispatch(self, now)

    # The replica's side

    @property
    def is_wanted(self) -> bool:
        return self.caller is not None and self.ticket is not None

    def send_to(self, source: ResponseSource) -> None:
        caller, upstream = self.caller, source
        assert caller is not None, "an exchange without a caller is withdrawn, not sent"
        self.upstream = upstream
        self.sends += 1
        if upstream.announces_start:
            self.phase = SENT
            if upstream.worker and not self._may_run_twice:
                # This gateway may be killed before it could pass on that the handler begins.
                caller.announce_start()
        else:
            self.phase = STARTED
            caller.announce_start()
        request, body, ticket = self.request, self._body, self.ticket
        fence = upstream.fence_line(
            needs_slot=ticket is not None and ticket.needs_slot, may_return=self._stays_kept
        )
        if request.passed and upstream.worker:
            fence += b"\r\n%b: %b" % (PASSED, request.passed)
        message = request.to_replica(
            upstream.host,
            self.request_id + fence,
            with_authorization=takes_authorization(self.dispatcher.route, request),
            prefix=self.prefix,
        )
        if upstream.relays:
            self.passed = b"" if self._may_run_twice or request.upgrade else _new_passed(request)
            due_in_s = self.due_at - self.context.loop.time()
            message = for_owner(message, request.secret, due_in_s, self.passed)
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
        self.send_more()
        if request.expects_continue and not (self.received or self.request_done):
            caller.send_continue()
        if caller.read_paused or not self.request_done:
            caller.adjust_reading()

    def send_more(self) -> None:
        """Sends more of a long body, as much as the replica takes."""
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
        upstream = self.upstream
        if self.phase == SENT and upstream is not None:
            self.phase = STARTED
            self.handler_announced = True
            if upstream.relays and self.caller is not None:
                self.caller.announce_start()
            if upstream.worker and not self._may_run_twice:
                self._drop_body()

    def waits(self) -> None:
        if self.phase == STARTED:
            self.phase = SENT
            if self.caller is not None:
                self.caller.announce_wait()

    def ask_back(self) -> bool:
        """The owner to which it was sent is gone or silent. It is lost as soon as the replicas have
        said whether it has begun: it will not from now on. False: it may be at one that cannot
        say it."""
        route = self.dispatcher.route
        replicas = route.beyond if route.relayed else route.replicas
        if self.phase == STARTED and not all(replica.worker for replica in replicas):
            return False
        self.context.recalls.ask(self.passed, replicas, self._came_back)
        return True

    def unreachable(self) -> None:
        if self.ticket is not None:
            self.dispatcher.retry(self)

    # Inside

    def _came_back(self, begun: bool) -> None:
        if self.ticket is not None:  # its caller is still there
            self.passed, self.phase = b"", STARTED if begun else SENT
            self.lost(unread=False, silent=False)

    def _disconnect(self) -> str:
        """Gives up the upstream, which has ended; returns the replica's address."""
        upstream, self.upstream = self.upstream, None
        return "?" if upstream is None else upstream.address

    @property
    def _may_run_twice(self) -> bool:
        """Whether it may be sent again after its handler has begun. A request to change the
        protocol is a GET, but what follows it is not idempotent."""
        if self.request.upgrade:
            return False
        return self.request.method in IDEMPOTENT or self.dispatcher.route.may_run_twice

    @property
    def _stays_kept(self) -> bool:
        """Whether all of it can be sent again, also what is still to come."""
        size_bytes = self.received if self.request_done else self.request.content_length
        if self.request.chunked and not self.request_done:
            return False
        return self._kept and size_bytes <= self.dispatcher.limits.repeat_bytes

    def _keep_within_bounds(self) -> None:
        if self.received > self.dispatcher.limits.repeat_bytes:
            self._drop_body()


def _new_passed(request: RequestHead) -> bytes:
    """Of a sending to an owner; a gateway between has the first one's word for it."""
    return request.passed or os.urandom(8).hex().encode()
