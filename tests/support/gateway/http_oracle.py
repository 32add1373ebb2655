"""Whether the gateway reads some bytes as it must, judged by h11, which knows nothing of it.

One input is a caller's bytes. They are read whole and in pieces: both must give the same requests
and the same end. What a replica would get of them must be, for h11, the same number of requests,
with the same bodies and trailers, and nothing between or behind them: no smuggled request.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import h11

from hotplate.serving.gateway.errors import BadRequest
from hotplate.serving.gateway.http1.fields import Field, last_chunk
from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.request_reader import RequestReader
from hotplate.serving.gateway.limits import Limits

LIMITS = Limits(head_bytes=512, head_lines=16, target_bytes=64)
"""Small, so that inputs reach them."""
REPLICA = b"replica:1"
PIECES_MOST = 8


class Differs(AssertionError):
    """The gateway does not read the bytes as it must."""


@dataclass
class Taken:
    """One request as the gateway read it."""

    head: RequestHead
    body: bytes = b""
    trailers: Sequence[Field] = ()
    whole: bool = False

    def take_body(self, data: bytes) -> None:
        if self.whole or not data:
            raise Differs("a piece of a body that is over, or of nothing")
        self.body += data

    def end_body(self, trailers: Sequence[Field]) -> None:
        if self.whole:
            raise Differs("a body ended twice")
        self.trailers, self.whole = list(trailers), True

    def take_tunnel(self, data: bytes) -> None:
        self.body += data

    def forwarded(self) -> bytes:
        """What a replica gets, as far as it has come."""
        head = self.head.to_replica(REPLICA, b"id", with_authorization=True)
        if not self.head.chunked:
            return head + self.body
        framed = b"%x\r\n%b\r\n" % (len(self.body), self.body) if self.body else b""
        return head + framed + (last_chunk(self.trailers) if self.whole else b"")


@dataclass
class Reading:
    """What the gateway made of some bytes."""

    taken: list[Taken] = field(default_factory=list)
    refused: bool = False

    def of(self, pieces: Iterable[bytes], memo: HeadCache[RequestHead]) -> Reading:
        reader = RequestReader(LIMITS, peer=b"10.0.0.1", accept=self._accept, memo=memo)
        try:
            for piece in pieces:
                reader.feed(piece)
        except BadRequest:
            self.refused = True
        return self

    def _accept(self, head: RequestHead) -> Taken:
        if self.taken and not self.taken[-1].whole:
            raise Differs("a request began in the middle of another")
        self.taken.append(Taken(head))
        return self.taken[-1]


def judge(data: bytes, seed: int) -> int:
    """How many requests were read. Raises Differs, or what the gateway may not raise."""
    memo: HeadCache[RequestHead] = HeadCache()
    whole = Reading().of([data], memo)
    for parts, known in (pieces(data, seed), HeadCache()), ([data], memo):
        other = Reading().of(parts, known)
        if (whole.taken, whole.refused) != (other.taken, other.refused):
            raise Differs(f"whole {whole} but in pieces, or known, {other}")
    calls = [taken for taken in whole.taken if not taken.head.upgrade]
    _same(calls, b"".join(taken.forwarded() for taken in calls))
    return len(whole.taken)


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(PIECES_MOST)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        yield data[start:end]


def _same(calls: Sequence[Taken], forwarded: bytes) -> None:
    """Checks that h11 reads these requests, and no others, in what a replica gets."""
    replica = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    replica.receive_data(forwarded)
    for call in calls:
        event = replica.next_event()
        if not isinstance(event, h11.Request):
            raise Differs(f"h11 reads {event} where {call} was sent")
        if (event.method, event.target) != (call.head.method, call.head.target):
            raise Differs(f"h11 reads {event} where {call} was sent")
        body = b""
        while isinstance(event := replica.next_event(), h11.Data):
            body += event.data
        if body != call.body:
            raise Differs(f"h11 reads the body {body!r} where {call} was sent")
        if not call.whole:
            if event is not h11.NEED_DATA:
                raise Differs(f"h11 reads {event} behind a part of {call}")
            return
        if not isinstance(event, h11.EndOfMessage):
            raise Differs(f"h11 reads {event} behind {call}")
        if len(event.headers) > len(call.trailers):
            raise Differs(f"h11 reads the trailers {event.headers} of {call}")
        replica.send(h11.Response(status_code=204, headers=[]))
        replica.send(h11.EndOfMessage())
        if replica.our_state is h11.MUST_CLOSE:
            raise Differs(f"h11 would close behind {call}")
        replica.start_next_cycle()
    if replica.trailing_data[0]:
        raise Differs(f"h11 has {replica.trailing_data[0]!r} left")
