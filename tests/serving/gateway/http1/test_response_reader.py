"""What is read as responses and what is refused, however the bytes come in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from hotplate.serving.gateway.http1.head_cache import HeadCache
from hotplate.serving.gateway.http1.response_head import ResponseHead
from hotplate.serving.gateway.http1.response_reader import (
    STARTED,
    WAITS,
    BadResponse,
    ResponseReader,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Taken:
    """One response that was read."""

    starts: int = 0
    waits_again: int = 0
    head: ResponseHead | None = None
    body: bytes = b""

    def started(self) -> None:
        self.starts += 1

    def waits(self) -> None:
        self.waits_again += 1

    def on_head(self, head: ResponseHead) -> None:
        assert self.head is None
        self.head = head

    def on_body(self, data: bytes) -> None:
        assert data, "nothing is no piece"
        self.body += data


@dataclass
class Connection:
    """A reader, and what came of each request."""

    worker: bool = False
    announces_start: bool = False
    heads: HeadCache[ResponseHead] = field(default_factory=HeadCache)
    reader: ResponseReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ResponseReader(
            worker=self.worker, announces_start=self.announces_start, heads=self.heads
        )

    def read(
        self, pieces: Iterable[bytes], method: bytes = b"GET", *, upgrade: bool = False
    ) -> Taken:
        taken = Taken()
        self.reader.begin(taken, method, upgrade=upgrade)
        for piece in pieces:
            self.reader.feed(piece)
        return taken


def one_by_one(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


def ways(data: bytes) -> list[list[bytes]]:
    return [[data], one_by_one(data)]


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (HEAD + b"hello", b"hello"),
        (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
        (HINTS + STARTED + HEAD + b"hello", b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
def test_a_response_ends_with_its_last_byte_and_leaves_its_connection(
    data: bytes, body: bytes
) -> None:
    for pieces in ways(data):
        connection = Connection()
        for _ in range(2):
            taken = connection.read(pieces[:-1])
            assert not connection.reader.ended
            connection.reader.feed(pieces[-1])
            assert connection.reader.ended and connection.reader.reusable
            assert taken.head is not None and taken.body == body
            assert taken.starts == 0


def test_trailers_are_those_of_the_response_and_of_nothing_behind_it() -> None:
    data = CHUNKED + b"0\r\nSum: 1\r\n\r\n"
    for pieces in (*ways(data), [data + HEAD + b"other"]):
        connection = Connection()
        connection.read(pieces)
        assert connection.reader.trailers == [(b"Sum", b"1")]
        connection.reader.begin(Taken(), b"GET")
        assert not connection.reader.trailers


@pytest.mark.parametrize("data", [HEAD, CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"])
def test_no_body_follows_the_head_that_a_head_asked_for(data: bytes) -> None:
    head = data[: data.find(b"\r\n\r\n") + 4]
    for pieces in ways(head):
        connection = Connection()
        for _ in range(2):
            taken = connection.read(pieces, b"HEAD")
            assert connection.reader.ended and connection.reader.reusable
            assert taken.head is not None and not taken.body
            assert not connection.reader.ends_with_connection
        assert connection.read([HEAD + b"hello"]).body == b"hello"


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    for pieces in ways(b"HTTP/1.1 200 OK\r\n\r\nhello"):
        connection = Connection()
        assert connection.read(pieces).body == b"hello"
        assert connection.reader.ends_with_connection
        assert not connection.reader.ended


def test_a_connection_that_the_server_closes_carries_nothing_more() -> None:
    connection = Connection()
    connection.read([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"])
    assert connection.reader.ended and not connection.reader.reusable


@pytest.mark.parametrize("more", [HEAD + b"other", b"HTTP/1.1 2", HINTS, b"nonsense", b"\x00"])
def test_bytes_behind_a_response_are_dropped_with_the_connection(more: bytes) -> None:
    connection = Connection()
    taken = connection.read([HEAD + b"hello" + more])
    assert taken.body == b"hello"
    assert connection.reader.ended and not connection.reader.reusable


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 99 Less\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED + b"x\r\n",
        SWITCH,
        b"HTTP/1.1 200 OK\r\nhotplate-answer-bytes: many\r\nContent-Length: 5\r\n\r\n",
    ],
)
def test_what_is_no_response_to_the_request_is_refused(data: bytes) -> None:
    for pieces in ways(data):
        connection = Connection(worker=True)
        with pytest.raises(BadResponse):
            connection.read(pieces)


def test_only_our_worker_is_believed_how_much_is_for_the_caller() -> None:
    data = b"HTTP/1.1 200 OK\r\nhotplate-answer-bytes: 3\r\nContent-Length: 5\r\n\r\nhello"
    for worker, expected in ((True, 3), (False, None)):
        taken = Connection(worker=worker).read([data])
        assert taken.head is not None and taken.head.answer_bytes == expected


def test_a_tunnel_begins_behind_the_head_that_was_asked_for() -> None:
    connection = Connection()
    taken = connection.read([SWITCH + b"\x01\x02"], upgrade=True)
    assert taken.head is not None and taken.head.status == 101
    assert connection.reader.tunnel == b"\x01\x02"
    for pieces in ways(SWITCH):
        connection = Connection()
        connection.read(pieces, upgrade=True)
        assert connection.reader.tunnel == b""


def test_a_request_to_change_the_protocol_may_be_responded_to_in_the_old_one() -> None:
    connection = Connection()
    assert connection.read([HEAD + b"hello"], upgrade=True).body == b"hello"
    assert connection.reader.ended and connection.reader.tunnel is None


def test_the_start_of_a_handler_is_told_by_who_announces_it() -> None:
    for announces in (True, False):
        for pieces in ways(STARTED + HEAD + b"hello"):
            connection = Connection(announces_start=announces)
            taken = connection.read(pieces)
            assert taken.starts == announces
            assert taken.body == b"hello"


def test_another_gateway_takes_its_word_back_where_the_request_waits_again() -> None:
    for worker, waits in ((False, 1), (True, 0)):
        for pieces in ways(STARTED + WAITS + STARTED + HEAD + b"hello"):
            taken = Connection(worker=worker, announces_start=True).read(pieces)
            assert (taken.waits_again, taken.body) == (waits, b"hello")
            assert taken.starts == (2 if waits else 3)


def test_the_start_is_found_without_the_parser_where_it_comes_at_once() -> None:
    taken, reader = Taken(), Connection(announces_start=True).reader
    reader.begin(taken, b"GET")
    assert reader.after_started(STARTED + HEAD) == HEAD
    assert taken.starts == 1
    reader.feed(HEAD)
    assert reader.after_started(STARTED) == STARTED, "this is in the body"
    silent = Connection().reader
    silent.begin(taken, b"GET")
    assert silent.after_started(STARTED) == STARTED
    assert taken.starts == 1


def test_a_head_that_came_before_is_known() -> None:
    heads: HeadCache[ResponseHead] = HeadCache()
    first = Connection(heads=heads)
    assert first.reader.known(HEAD + b"hello") is None
    head = first.read([HEAD + b"hello"]).head
    other = Connection(heads=heads).reader
    other.begin(Taken(), b"GET")
    assert other.known(HEAD + b"world") is head
    for data in (HEAD, HEAD + b"worl", HEAD + b"world!", HEAD[:9], b""):
        assert other.known(data) is None
    other.begin(Taken(), b"HEAD")
    assert other.known(HEAD + b"world") is None


def test_nothing_is_known_in_the_middle_of_a_response() -> None:
    connection = Connection()
    connection.read([HEAD + b"hello"])
    connection.read([CHUNKED])
    assert connection.reader.known(HEAD + b"hello") is None


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        CHUNKED + b"0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Request-Id: 1\r\nContent-Length: 0\r\n\r\n",
        HINTS + HEAD + b"hello",
    ],
)
def test_heads_that_do_not_say_all_are_not_remembered(data: bytes) -> None:
    connection = Connection()
    connection.read([data])
    assert len(connection.heads) == 0


def test_a_head_in_pieces_is_not_remembered() -> None:
    connection = Connection()
    connection.read([HEAD[:20], HEAD[20:] + b"hello"])
    assert len(connection.heads) == 0
