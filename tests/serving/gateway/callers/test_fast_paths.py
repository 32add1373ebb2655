"""What comes whole and known takes a shorter way through a connection than what comes in pieces.
Both ways must leave the same bytes on both sides, and the same state. (Chunks may
be cut otherwise, so there are none.)"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route
from hotplate.serving.gateway.replicas.upstream import Upstream
from hotplate.serving.gateway.route_server import RouteServer
from tests.support.gateway.answer_oracle import Wire
from tests.support.gateway.http_oracle import pieces

ROUTE = Route("acme/echo", "127.0.0.1", 0, (ReplicaRoute("r1", "127.0.0.1:1"),))
FIELDS = b"Host: a\r\nX-Request-Id: 7\r\n"
REQUESTS = {
    "get": b"GET /a?b=c HTTP/1.1\r\n" + FIELDS + b"\r\n",
    "post": b"POST /a HTTP/1.1\r\n" + FIELDS + b"Content-Length: 5\r\n\r\nhello",
    "an empty body": b"POST /a HTTP/1.1\r\n" + FIELDS + b"Content-Length: 0\r\n\r\n",
    "the last one": b"GET /a HTTP/1.1\r\n" + FIELDS + b"Connection: close\r\n\r\n",
    "answered here": b"GET /livez HTTP/1.1\r\n" + FIELDS + b"\r\n",
}
RESPONSES = {
    "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld",
    "no body": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "the last one": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nworld",
    "an error": b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nsorry",
}


@dataclass(frozen=True)
class Left:
    """What a request and its response have left behind."""

    asked: bytes
    answered: bytes
    caller_closed: bool
    replica_closed: bool
    turn: int
    counts: tuple[object, ...]


class OneConnection:
    """A route of which only the sockets are not there: a caller's, and one to its replica."""

    def __init__(self) -> None:
        self._server = RouteServer(ROUTE, Limits(), lambda change: None)
        self._server.follow(ROUTE)

    def exchange(self, request: list[bytes], response: list[bytes]) -> Left:
        server, pool = self._server, self._server.dispatcher.pool("r1")
        assert pool is not None
        upstream, replica = Upstream(pool), Wire()
        upstream.connection_made(replica)
        pool.take_back(upstream, pool.now())
        downstream, caller = server.callers.new(), Wire()
        downstream.connection_made(caller)
        for piece in request:
            downstream.data_received(piece)
        for piece in response if replica.written else ():
            if not replica.closing:
                upstream.data_received(piece)
        queue, counters = server.queue, server.counters
        left = Left(
            asked=replica.written,
            answered=caller.written,
            caller_closed=caller.closing,
            replica_closed=replica.closing,
            turn=downstream.turns.state,
            counts=(
                *(queue.in_flight, queue.queued, queue.idle, server.bodies.held_bytes),
                *(tuple(counters.answers), dict(counters.refusals), counters.left),
            ),
        )
        upstream.connection_lost(None)
        downstream.connection_lost(None)
        return left

    def close(self) -> None:
        self._server.abandon()


@pytest.mark.parametrize("response", RESPONSES)
@pytest.mark.parametrize("request_", REQUESTS)
async def test_whole_or_in_pieces_comes_to_the_same(request_: str, response: str) -> None:
    asked, answered = REQUESTS[request_], RESPONSES[response]
    whole = _left([asked], [answered])
    assert whole.answered, "there is something to compare"
    for seed in range(12):
        assert _left(_cut(asked, seed), _cut(answered, seed)) == whole


@pytest.mark.parametrize("response", RESPONSES)
@pytest.mark.parametrize("request_", REQUESTS)
async def test_known_or_new_comes_to_the_same(request_: str, response: str) -> None:
    asked, answered = REQUESTS[request_], RESPONSES[response]
    known = OneConnection()
    first = known.exchange([asked], [answered])
    second = known.exchange([asked], [answered])
    known.close()
    assert (second.asked, second.answered, second.turn) == (first.asked, first.answered, first.turn)
    assert (second.caller_closed, second.replica_closed) == (
        first.caller_closed,
        first.replica_closed,
    )
    assert second.counts[:4] == first.counts[:4]


def _cut(data: bytes, seed: int) -> list[bytes]:
    """Pieces of the data; no socket gives an empty one."""
    return [piece for piece in pieces(data, seed) if piece]


def _left(request: list[bytes], response: list[bytes]) -> Left:
    connection = OneConnection()
    left = connection.exchange(request, response)
    connection.close()
    return left
