"""Whether the gateway passes a replica's bytes on as one answer, judged by h11.

One input is what a replica sends before it closes. It goes through a whole route, from the
replica's connection to the caller's, of which only the sockets are not there. Read whole, in
pieces, and once more now that its head is known, it must come to the same; and what the caller
gets must be, for h11, one answer and nothing behind it, whole exactly if the gateway does not cut
it off.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import h11

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from hotplate.serving.gateway.replicas.upstream import Upstream
from hotplate.serving.gateway.route_server import RouteServer
from tests.support.gateway.http_oracle import Differs, pieces

REQUESTS = {
    b"POST": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    b"HEAD": b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
}
LIMITS = Limits(repeat_bytes=0)
"""No request is sent twice: the first answer counts."""
REPLICA = ReplicaRoute("replica", "127.0.0.1:1")
ROUTE = Route("oracle", "127.0.0.1", 0, (REPLICA,))
BAD_GATEWAY = 502


class Wire(asyncio.Transport):
    """A connection that takes everything and keeps it. It is its own socket, on which nothing is
    ever to be read."""

    family = socket.AF_INET
    _quiet = os.pipe()

    def __init__(self) -> None:
        super().__init__({"socket": self, "peername": ("10.0.0.1", 1)})
        self.written = b""
        self.closing = self.cut = False

    def fileno(self) -> int:
        return self._quiet[0]

    def setsockopt(self, *option: int) -> None: ...

    def getsockopt(self, *option: int) -> bytes:
        return b""

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        if self.closing:
            raise Differs(f"{data!r} is written to a connection that is closed")
        self.written += bytes(data)

    def write_eof(self) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.cut = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """What h11 reads in the caller's bytes."""

    status: int
    body: bytes
    trailers: tuple[tuple[bytes, bytes], ...]
    whole: bool


class Door:
    """A route with one replica."""

    def __init__(self, method: bytes) -> None:
        self._method = method
        self._server = RouteServer(ROUTE, LIMITS, lambda change: None)
        self._server.follow(ROUTE)

    def pass_on(self, data: Iterable[bytes]) -> Answer:
        """What becomes of a replica's bytes. Raises Differs."""
        pool = self._server.dispatcher.pool(REPLICA.id)
        assert pool is not None
        upstream, replica = Upstream(pool), Wire()
        upstream.connection_made(replica)
        pool.take_back(upstream, pool.now())
        downstream, caller = self._server.callers.new(), Wire()
        downstream.connection_made(caller)
        downstream.data_received(REQUESTS[self._method])
        if not replica.written:
            raise Differs("the replica was asked nothing")
        for piece in data:
            if piece and not replica.closing:
                upstream.data_received(piece)
        upstream.connection_lost(None)
        downstream.connection_lost(None)
        if pool.ejection.probed(""):  # the next answer is another's, whatever became of this one
            self._server.dispatcher.replica_changed(pool)
        return _read(self._method, caller)

    def close(self) -> None:
        self._server.abandon()


def judge_answer(data: bytes, seed: int) -> bool:
    """Whether the caller got a whole answer of the replica's. Raises Differs, or what the gateway
    may not raise."""
    return _RUNNER.run(_judge(data, seed))


_RUNNER = asyncio.Runner()


async def _judge(data: bytes, seed: int) -> bool:
    method = list(REQUESTS)[seed % len(REQUESTS)]
    whole = _through(method, [data])
    for other in (_through(method, pieces(data, seed)), _through(method, [data], [data])):
        if whole != other:
            raise Differs(f"whole {whole} but in pieces, or known, {other}")
    return whole.whole and whole.status != BAD_GATEWAY


def _through(method: bytes, *answers: Iterable[bytes]) -> Answer:
    """What the caller gets of the last of them."""
    door = Door(method)
    try:
        return [door.pass_on(data) for data in answers][-1]
    finally:
        door.close()


def _read(method: bytes, wire: Wire) -> Answer:
    caller = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    caller.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    caller.send(h11.EndOfMessage())
    caller.receive_data(wire.written)
    head = caller.next_event()
    if head is h11.NEED_DATA and wire.cut:
        return Answer(0, b"", (), whole=False)
    if not isinstance(head, h11.Response):
        raise Differs(f"h11 reads {head} in {wire.written!r}")
    body = b""
    while isinstance(event := caller.next_event(), h11.Data):
        body += event.data
    whole = isinstance(event, h11.EndOfMessage)
    if whole == wire.cut or caller.trailing_data[0]:
        raise Differs(f"h11 reads {event} behind {wire.written!r}, cut: {wire.cut}")
    trailers = tuple(event.headers) if isinstance(event, h11.EndOfMessage) else ()
    return Answer(head.status_code, body, trailers, whole)
