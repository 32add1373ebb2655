"""The way of a request to a replica: its body as it comes, and what may have to be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotplate.serving.gateway.admission.gate import (
    body_too_large,
    pickle_refused,
    takes_authorization,
)
from hotplate.serving.gateway.admission.internal_callers import why_refused
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.multipart import PartWatch
from hotplate.serving.gateway.http1.request_head import Field, RequestHead, for_owner, last_chunk
from hotplate.serving.gateway.proxy.retry import ANSWERED, IDEMPOTENT, SENT, STARTED, UNSENT
from hotplate.serving.gateway.proxy.spool import Spool
from hotplate.serving.gateway.replicas.call import Call
from hotplate.serving.gateway.replicas.response_source import Tap

if TYPE_CHECKING:
    from hotplate.serving.gateway.callers.downstream import Front
    from hotplate.serving.gateway.route_server import RouteServer


class Sending(Call):
    """One request on its way to a replica; an `Exchange` brings its answer back, too."""

    __slots__ = (
        "_body",
        "_kept",
        "_trailers",
        "buffered",
        "due_at",
        "front",
        "held_bytes",
        "parts",
        "phase",
        "plain",
        "prefix",
        "received",
        "refused",
        "request_done",
        "request_id",
        "sends",
        "server",
        "spool",
        "upstream",
    )

    def __init__(self, front: Front, server: RouteServer, request: RequestHead) -> None:
        super().__init__(request)
        self.front: Front | None = front
        """None once its caller has the answer, or has left, or its time was over."""
        self.server = server
        self.request_id = request.given_id or server.callers.new_id()
        self.prefix = b""
        """What goes before its target on the way to a replica."""
        self.upstream: Tap | None = None
        self.request_done = False
        route = server.route
        self.refused: GatewayError | None = why_refused(route, request) if route.internal else None
        """Why it is, whatever follows: its body is not waited for."""
        self.due_at = request.due_at
        """When its answer is due, where that was counted before; infinite = here it is counted."""
        self.received = 0
        """Body bytes so far."""
        self.buffered = 0
        """Body bytes that wait here, in memory, for a connection to a replica."""
        self.held_bytes = 0
        """Of these, those that are counted while the rest is waited for (`incoming.py`)."""
        self.spool: Spool | None = None
        """What of its body is not sent yet, of a long one: in a file, behind what is here."""
        self.phase: int = UNSENT
        self.plain = False
        """Our worker has said that its handler begins, which it does not say of a WebSocket's."""
        self.sends = 0
        self.parts: PartWatch | None = None
        """Who looks at the parts of the body; None = it has none, or may have any."""
        self._body: list[bytes] = []
        """What waits for a connection, and what has been sent and may have to be sent again."""
        self._kept = True
        """Whether all of the body that has come is in `_body`."""
        self._trailers: Sequence[Field] = ()

    def take_body(self, data: bytes) -> None:
        """More of the request's body. Once the caller's side has ended it is thrown away."""
        front = self.front
        if front is None or self.refused is not None:
            return
        self.received += len(data)
        if self.received > self.server.route.body_limit_bytes:
            self.refuse(body_too_large(self.received, self.server.route))
        elif self.parts is not None and self.parts.has_pickle(data):
            self.refuse(pickle_refused())
        elif self.spool is not None or front.awaits(self):
            error = self.server.incoming.keep(self, data)
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
                self.server.grew(self, len(data))

    def hold(self, data: bytes) -> None:
        """Keeps more of the body in memory."""
        self._body.append(data)
        self.buffered += len(data)

    def refuse(self, error: GatewayError) -> None:
        """Nothing more of the body is taken: it ends now, or when its turn comes."""
        front, self.refused = self.front, error
        if front is None:
            return
        if front.serves(self):
            self.fail(error)
            return
        self.forget_body()
        if front.awaits(self):
            front.let_in(self)

    def end_body(self, trailers: Sequence[Field]) -> None:
        self.request_done = True
        self._trailers = trailers
        if self.ticket is not None:
            self.ticket.whole_at = self.server.loop.time()
        if self.upstream is not None and self.front is not None and self.request.chunked:
            if self.spool is None:
                self.upstream.write(last_chunk(trailers))
            else:
                self.send_on()

    @property
    def arrived(self) -> bool:
        """Whether it may go for a slot as it is, or is refused."""
        return self.request_done or self.refused is not None

    @property
    def sent_whole(self) -> bool:
        """Whether nothing more of it is to go to the replica."""
        return self.request_done and self.spool is None

    # As `Arriving` (arrivals.py)

    @property
    def awaited(self) -> bool:
        return self.front is not None and self.front.awaits(self)

    @property
    def holds_place(self) -> bool:
        return self.ticket is not None and not self.request_done

    @property
    def address(self) -> bytes:
        return self.request.forwarded[0].rpartition(b",")[2].strip()

    @property
    def in_chunks(self) -> bool:
        return self.request.chunked

    @property
    def spooled_bytes(self) -> int:
        return 0 if self.spool is None else self.spool.size_bytes

    def silent_s(self, now: float) -> float:
        return 0.0 if self.front is None else self.front.silent_s(now)

    def held_s(self, now: float) -> float:
        ticket = self.ticket
        return 0.0 if ticket is None or not self.receiving else now - ticket.granted_at

    @property
    def receiving(self) -> bool:
        """Whether the replica has it and waits for more of its body."""
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

    # The replica's side

    @property
    def is_wanted(self) -> bool:
        return self.front is not None and self.ticket is not None

    def balance(self) -> None:
        if self.front is not None:
            self.front.balance()

    def go(self, source: Tap) -> None:
        front, upstream = self.front, source
        assert front is not None, "an exchange without a caller is withdrawn, not sent"
        self.upstream = upstream
        self.sends += 1
        if upstream.tells:
            self.phase = SENT
        else:
            self.phase = STARTED
            front.tell_started()
        request, body = self.request, self._body
        message = request.to_replica(
            upstream.host,
            self.request_id,
            with_authorization=takes_authorization(self.server.route, request),
            prefix=self.prefix,
        )
        if upstream.relays:
            message = for_owner(message, request.secret, self.due_at)
        if request.upgrade:
            upstream.write(message)
            return
        if self.spool is not None or self.buffered > self.server.limits.repeat_bytes:
            if self.spool is None:
                self.spool = self.server.incoming.spool()
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
            front.go_on()
        if front.read_paused or not self.request_done:
            front.balance()

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
        """The replica says that the request's handler begins."""
        if self.phase == SENT:
            self.phase = STARTED
            self.plain = True
            if self.front is not None:
                self.front.tell_started()
            if not self._may_run_twice:
                self._drop_body()

    # Inside

    @property
    def _may_run_twice(self) -> bool:
        """A request to change the protocol is a GET, and what it leads to is not."""
        if self.request.upgrade:
            return False
        return self.request.method in IDEMPOTENT or self.server.route.may_run_twice

    def forget_body(self) -> None:
        """Nothing more of it is to be sent."""
        self._drop_body()
        if self.spool is not None:
            self.spool.close()
            self.spool = None

    def _drop_body(self) -> None:
        self._kept = False
        self._body.clear()
        self.buffered = 0

    def _keep_within_bounds(self) -> None:
        if self.received > self.server.limits.repeat_bytes:
            self._drop_body()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.request.chunked else data
