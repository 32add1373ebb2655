"""What is read as requests and what is refused, however the bytes come in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from hotplate.serving.gateway.errors import BadRequest
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.request_head import Field, RequestHead
from hotplate.serving.gateway.request_reader import RequestReader

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass
class Taken:
    """One request that was read."""

    head: RequestHead
    body: bytes = b""
    trailers: Sequence[Field] | None = None
    """None until it has ended."""
    tunnelled: bytes = b""

    def take_body(self, data: bytes) -> None:
        assert data, "nothing is no piece"
        self.body += data

    def end_body(self, trailers: Sequence[Field]) -> None:
        assert self.trailers is None
        self.trailers = trailers

    def take_tunnel(self, data: bytes) -> None:
        self.tunnelled += data


@dataclass
class Reading:
    """What came of some bytes."""

    taken: list[Taken] = field(default_factory=list)
    error: BadRequest | None = None
    reader: RequestReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = RequestReader(
            Limits(), peer=b"10.0.0.1", new_id=lambda: b"id", accept=self._accept
        )

    def _accept(self, head: RequestHead) -> Taken:
        self.taken.append(Taken(head))
        return self.taken[-1]


def read(pieces: Iterable[bytes]) -> Reading:
    reading = Reading()
    try:
        for piece in pieces:
            reading.reader.feed(piece)
    except BadRequest as error:
        reading.error = error
    return reading


def one_by_one(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


REFUSED = {
    "a bare line feed before the request": b"\n" + GET,
    "a bare carriage return before the request": b"\r" + GET,
    "a bare line feed between two requests": GET + b"\r\n\n" + GET,
    "two spaces before the target": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces behind the target": b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": b"GET / RTSP/1.0\r\nHost: a\r\n\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "an asterisk without OPTIONS": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a user in the target": b"GET http://me@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "two hosts in one": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "a path in the host": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a user in the host": b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n",
    "NUL in the target": b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    "the same length twice": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length below nothing": POST + b"Content-Length: -3\r\n\r\nabc",
    "a length of 2^64": POST + b"Content-Length: 18446744073709551616\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked on two lines": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "chunked and then gzip": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "an empty coding": POST + b"Transfer-Encoding:\r\n\r\n",
    "a chunk's size with a plus": CHUNKS + b"+3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with a minus": CHUNKS + b"-3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with 0x": CHUNKS + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with an underscore": CHUNKS + b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n",
    "a chunk's size behind a space": CHUNKS + b" 3\r\nabc\r\n0\r\n\r\n",
    "a chunk's size before a space": CHUNKS + b"3 \r\nabc\r\n0\r\n\r\n",
    "no chunk size": CHUNKS + b"\r\nabc\r\n0\r\n\r\n",
    "a chunk of 2^64": CHUNKS + b"10000000000000000\r\nabc\r\n0\r\n\r\n",
    "a chunk of 2^64 and 3": CHUNKS + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a chunk's size with many zeros": CHUNKS + b"0" * 17 + b"3\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n",
    "a bare line feed behind a chunk's size": CHUNKS + b"3\nabc\r\n0\r\n\r\n",
    "a bare line feed behind a chunk": CHUNKS + b"3\r\nabc\n0\r\n\r\n",
    "a bare line feed behind the last chunk": CHUNKS + b"3\r\nabc\r\n0\n\r\n",
    "a bare line feed at the end": CHUNKS + b"3\r\nabc\r\n0\r\n\n",
    "a bare line feed in an extension": CHUNKS + b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "a bare carriage return in an extension": CHUNKS + b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": CHUNKS + b"3;a\0\r\nabc\r\n0\r\n\r\n",
    "an extension without end": CHUNKS + b"3;" + b"a" * 5000,
    "long extensions of small chunks": CHUNKS + (b"1;" + b"a" * 1000 + b"\r\nb\r\n") * 20,
    "a bare line feed behind a trailer": CHUNKS + b"0\r\nX: y\n\r\n",
    "a folded trailer": CHUNKS + b"0\r\nX: y\r\n z\r\n\r\n",
    "a trailer with a space before the colon": CHUNKS + b"0\r\nX : y\r\n\r\n",
    "NUL in a trailer": CHUNKS + b"0\r\nX: \0\r\n\r\n",
    "a trailer without a name": CHUNKS + b"0\r\n: y\r\n\r\n",
}
OTHER_STATUS = {
    "gzip and then chunked": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    "another expectation": (417, POST + b"Expect: wonders\r\nContent-Length: 3\r\n\r\n"),
    "too many trailers": (431, CHUNKS + b"0\r\n" + b"X: y\r\n" * 200),
    "trailers without end": (431, CHUNKS + b"0\r\nX: " + b"y" * 65536),
    "a header line without end": (431, POST + b"X: " + b"y" * 65536),
    "a target without end": (414, b"GET /" + b"a" * 16384),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_could_be_read_in_two_ways_is_refused_whole_and_in_pieces(data: bytes) -> None:
    for reading in (read([data]), read(one_by_one(data))):
        assert reading.error is not None
        assert reading.error.status == 400
        assert all(taken.head.target != b"/after" for taken in reading.taken[1:])


@pytest.mark.parametrize(("status", "data"), OTHER_STATUS.values(), ids=OTHER_STATUS)
def test_some_refusals_have_a_status_of_their_own(status: int, data: bytes) -> None:
    for reading in (read([data]), read([*one_by_one(data[:2000]), data[2000:]])):
        assert reading.error is not None
        assert reading.error.status == status


READ = {
    "empty lines between requests": (GET + b"\r\n\r\n" + GET, [b"", b""]),
    "a length with zeros before it": (
        POST + b"Content-Length: 003\r\n\r\nabc" + GET,
        [b"abc", b""],
    ),
    "a body for GET": (GET[:-2] + b"Content-Length: 3\r\n\r\nabc" + GET, [b"abc", b""]),
    "chunks": (
        CHUNKS + b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n" + GET,
        [b"abc0123456789", b""],
    ),
    "extensions": (CHUNKS + b'3;a=b;c="d;e"\r\nabc\r\n0;f\r\n\r\n' + GET, [b"abc", b""]),
    "many small chunks": (CHUNKS + b"1\r\nb\r\n" * 5000 + b"0\r\n\r\n", [b"b" * 5000]),
    "nothing in chunks": (CHUNKS + b"0\r\n\r\n" + GET, [b"", b""]),
    "an asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [b""]),
    "nothing after a close": (GET[:-2] + b"Connection: close\r\n\r\n" + GET, [b""]),
    "a body and a close": (
        POST + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc" + b"rubbish",
        [b"abc"],
    ),
    "an offer of HTTP/2 with chunks": (
        CHUNKS[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n1\r\na\r\n0\r\n\r\n" + GET,
        [b"a", b""],
    ),
}


@pytest.mark.parametrize(("data", "bodies"), READ.values(), ids=READ)
def test_requests_are_read_whole_and_in_pieces(data: bytes, bodies: list[bytes]) -> None:
    for reading in (read([data]), read(one_by_one(data))):
        assert reading.error is None
        assert [taken.body for taken in reading.taken] == bodies
        assert all(taken.trailers is not None for taken in reading.taken)
        assert not reading.reader.in_head


def test_a_target_in_absolute_form_may_have_no_path() -> None:
    reading = read([b"GET http://b.test?q=1 HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert (reading.taken[0].head.host, reading.taken[0].head.target) == (b"b.test", b"/?q=1")


def test_what_follows_an_upgrade_is_the_other_protocols() -> None:
    offer = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for pieces in ([offer + b"\r\nabc"], one_by_one(offer + b"\r\nabc")):
        assert read(pieces).taken[0].tunnelled == b"\r\nabc"


def test_trailers_are_read_with_their_fields() -> None:
    data = CHUNKS + b"1\r\na\r\n0\r\nX-Sum: 7 \r\nX-None:\r\n\r\n" + GET
    for reading in (read([data]), read(one_by_one(data))):
        assert reading.taken[0].trailers == [(b"X-Sum", b"7"), (b"X-None", b"")]
        assert reading.taken[1].trailers == ()
