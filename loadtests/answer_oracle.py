"""Whether the gateway passes a replica's bytes on as one answer, judged by h11.

One input is what a replica sends before it closes. Read whole and in pieces it must come to the
same; and what a caller would get of it must be, for h11, one answer and nothing behind it, whole
exactly if the gateway says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import h11

from hotplate.serving.gateway.answer_head import AnswerHead
from hotplate.serving.gateway.head_memo import HeadMemo
from hotplate.serving.gateway.request_head import Field, RequestHead, last_chunk, read_request
from hotplate.serving.gateway.upstream import Upstream
from loadtests.http_oracle import Differs, pieces

if TYPE_CHECKING:
    from hotplate.serving.gateway.exchange import Exchange

METHODS = (b"GET", b"HEAD")
HOST = ((b"Host", b"a"),)


def _request(method: bytes) -> RequestHead:
    return read_request(method, b"/", HOST, http10=False, peer=b"10.0.0.1", proto=b"http")


class Wire(asyncio.Transport):
    """A connection to a replica that takes everything."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.closing = False

    def fileno(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Idle:
    """The pool of a replica that nothing is asked of any more."""

    relays = True  # on a socket without TCP's options
    worker = False
    host_field = b"replica:1"
    address = "replica:1"

    def __init__(self) -> None:
        self.heads: HeadMemo[AnswerHead] = HeadMemo()

    def forget(self, upstream: Upstream) -> None: ...

    def failed(self, reason: str) -> None: ...

    def put(self, upstream: Upstream) -> None: ...


@dataclass
class Passed:
    """The exchange: what a caller got."""

    request: RequestHead
    end: str = ""
    """How it ended, in a word."""
    status: int = 0
    body: bytes = b""
    trailers: Sequence[Field] = ()
    early: bool = False
    """The caller's part ends before the replica's, as only our worker says."""
    front: None = field(default=None, compare=False)
    request_done: bool = True
    repeatable: bool = False
    _head: bytes = field(default=b"", compare=False)
    _chunked: bool = False

    @property
    def sent(self) -> bytes:
        if not self._chunked:
            return self._head + self.body
        framed = b"%x\r\n%b\r\n" % (len(self.body), self.body) if self.body else b""
        last = last_chunk(self.trailers) if self.end == "ended" else b""
        return self._head + framed + last

    def answer_head(self, head: AnswerHead) -> None:
        if self._head or self.end:
            raise Differs("a second answer began")
        self.status, self.early = head.status, head.answer_bytes is not None
        self._head, self._chunked, _ = head.to_caller(self.request, b"id", keep_alive=True)

    def answer_body(self, data: bytes) -> None:
        if not self._head or self.end:
            raise Differs("a body without an answer")
        self.body += data

    def flush(self) -> None: ...

    def answer_end(self, trailers: Sequence[Field] = ()) -> None:
        self._over("ended")
        self.trailers = list(trailers)

    def answer_whole(self, head: AnswerHead, body: bytes) -> None:
        self.answer_head(head)
        if body:
            self.answer_body(body)
        self.answer_end()

    def lost(self, *what: object, **how: object) -> None:
        self._over("lost")

    def answered_nonsense(self, *what: object) -> None:
        self._over("lost")

    def open_tunnel(self, first: bytes) -> None:
        raise Differs("a tunnel that nobody asked for")

    def _over(self, end: str) -> None:
        if self.end:
            raise Differs(f"{self.end} and then {end}")
        self.end = end


def judge_answer(data: bytes, seed: int) -> str:
    """How the answer ended. Raises Differs, or what the gateway may not raise."""
    method = METHODS[seed % len(METHODS)]
    pool = Idle()
    whole = _passed(method, [data], pool)
    for parts, of in (pieces(data, seed), Idle()), ([data], pool):
        other = _passed(method, parts, of)
        if whole != other:
            raise Differs(f"whole {whole} but in pieces, or known, {other}")
    if whole.status and not whole.early:
        _same(whole)
    return whole.end


def _passed(method: bytes, data: Iterable[bytes], pool: Idle) -> Passed:
    passed = Passed(_request(method))
    upstream = Upstream(cast("Any", pool))
    upstream.tells = False
    upstream.connection_made(wire := Wire())
    upstream.exchange = cast("Exchange", passed)
    for piece in data:
        if piece and not wire.closing:
            upstream.data_received(piece)
    upstream.connection_lost(None)
    return passed


def _same(passed: Passed) -> None:
    """Checks that h11 reads this answer, and no other, in what a caller gets."""
    caller = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    caller.send(h11.Request(method=passed.request.method, target="/", headers=[("Host", "a")]))
    caller.send(h11.EndOfMessage())
    caller.receive_data(passed.sent)
    event = caller.next_event()
    if not isinstance(event, h11.Response) or event.status_code != passed.status:
        raise Differs(f"h11 reads {event} where {passed} was passed on")
    body = b""
    while isinstance(event := caller.next_event(), h11.Data):
        body += event.data
    whole = isinstance(event, h11.EndOfMessage)
    if body != passed.body or (passed.end == "ended") != whole or caller.trailing_data[0]:
        raise Differs(f"h11 reads {body!r} and {event} where {passed} was passed on")
