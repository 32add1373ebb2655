"""What is read as requests and what is refused, however the bytes come in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hotplate.serving.gateway.errors import BadRequest
from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.head_cache import LONGEST_BYTES, MOST, HeadCache
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.http1.request_reader import RequestReader
from hotplate.serving.gateway.limits import Limits
from tests.support.gateway.wire import CHUNKS, GET, OTHER_STATUS, READ, REFUSED


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
    memo: HeadCache[RequestHead] = field(default_factory=HeadCache)
    peer: bytes = b"10.0.0.1"
    limits: Limits = field(default_factory=Limits)
    reader: RequestReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = RequestReader(
            self.limits,
            peer=self.peer,
            accept=self._accept,
            memo=self.memo,
        )

    def _accept(self, head: RequestHead) -> Taken:
        self.taken.append(Taken(head))
        return self.taken[-1]


def read(pieces: Iterable[bytes], reading: Reading | None = None) -> Reading:
    reading = reading or Reading()
    try:
        for piece in pieces:
            reading.reader.feed(piece)
    except BadRequest as error:
        reading.error = error
    return reading


def one_by_one(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


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


POST = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"


def test_a_head_that_is_known_is_read_as_before_and_sent_with_an_id_of_its_own() -> None:
    for pieces in ([POST * 3], [POST, POST, POST], [*one_by_one(POST), POST * 2]):
        taken = read(pieces).taken
        assert [each.body for each in taken] == [b"abc"] * 3
        ids = [b"id-%d" % number for number in range(3)]
        sent = [
            each.head.to_replica(b"r", request_id, with_authorization=True)
            for each, request_id in zip(taken, ids, strict=True)
        ]
        assert all(id in head for id, head in zip(ids, sent, strict=True))
        assert len({s.replace(id, b"") for id, s in zip(ids, sent, strict=True)}) == 1


def test_what_is_known_of_one_caller_is_not_said_of_another() -> None:
    first = read([POST])
    second = read([POST], Reading(memo=first.memo, peer=b"10.0.0.2"))
    (taken,) = second.taken
    assert b"10.0.0.2" in taken.head.to_replica(b"r", b"id", with_authorization=True)
    assert taken.body == b"abc"


def test_what_is_refused_or_a_requests_own_is_not_remembered() -> None:
    own = GET[:-2] + b"X-Request-Id: mine\r\n\r\n"
    bad = GET[:-2] + b"Host: b\r\n\r\n"
    for data in (own, CHUNKS, bad, GET[:-2] + b"X-Long: " + b"x" * LONGEST_BYTES + b"\r\n\r\n"):
        assert not read([data]).memo


def test_a_memo_starts_anew_rather_than_grow() -> None:
    reading = read([b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(MOST + 1)])
    assert len(reading.memo) == 1


def known(reading: Reading, data: bytes) -> tuple[bytes, bytes] | None:
    """The target and the body of a request that is known, whole, and nothing else."""
    found = reading.reader.known(data)
    return found and (found[0].target, found[1])


def test_a_request_whose_head_is_known_is_found_without_reading() -> None:
    memo = read([POST, GET]).memo
    other = Reading(memo=memo)
    for _ in range(2):
        assert known(other, POST) == (b"/predict", b"abc")
        assert known(other, GET) == (b"/after", b"")
    for data in (POST[:-1], POST + b"d", POST + GET, GET[:-1], GET + GET, b"", b"GET"):
        assert known(other, data) is None
    assert not other.taken, "nothing was read"
    assert known(Reading(memo=memo, peer=b"10.0.0.2"), POST) is None


def test_a_request_after_which_the_caller_closes_is_read_as_any_other() -> None:
    last = GET[:-2] + b"Connection: close\r\n\r\n"
    memo = read([last]).memo
    assert len(memo) == 1
    assert known(Reading(memo=memo), last) is None


@pytest.mark.parametrize("begun", [POST[:9], POST[:-1], GET + b"\r", CHUNKS])
def test_nothing_is_known_in_the_middle_of_a_request(begun: bytes) -> None:
    reading = read([GET, POST, begun])
    assert known(reading, GET) is None


def test_nothing_is_known_after_the_last_request() -> None:
    reading = read([GET, GET[:-2] + b"Connection: close\r\n\r\n"])
    assert known(reading, GET) is None
    assert len(reading.taken) == 2


@pytest.mark.parametrize("begun", [b"", POST[:9], POST[:-1]])
def test_a_caller_that_rests_goes_on_where_it_was(begun: bytes) -> None:
    whole = POST if begun else b""
    reading = read([GET, begun])
    reading.reader.drop_parser()
    read([whole[len(begun) :] + GET], reading)
    assert reading.error is None
    assert [taken.head.target for taken in reading.taken][-1] == b"/after"
    assert len(reading.taken) == (3 if begun else 2)


def limited(data: bytes, **limits: Any) -> list[Reading]:
    """What comes of the bytes, at once and in pieces, within these limits."""
    readings = []
    for pieces in ([data], one_by_one(data)):
        reading = Reading(limits=replace(Limits(), **limits))
        readings.append(read(pieces, reading))
    return readings


FIELDS = b"Host: a\r\nX-Own: " + b"y" * 40 + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        (b"GET /123 HTTP/1.1\r\n" + FIELDS, {"target_bytes": 4}),
        (b"GET / HTTP/1.1\r\n" + FIELDS, {"head_lines": 2}),
        (b"GET / HTTP/1.1\r\n" + FIELDS, {"head_bytes": len(FIELDS)}),
    ],
)
def test_what_is_as_large_as_its_limit_is_read_and_no_larger(
    data: bytes, limits: dict[str, int]
) -> None:
    for reading in limited(data, **limits):
        assert reading.error is None
        assert len(reading.taken) == 1
    ((name, limit),) = limits.items()
    for reading in limited(data, **{name: limit - 1}):
        assert reading.error is not None
        assert reading.error.status == (414 if name == "target_bytes" else 431)
        assert not reading.taken


def test_a_request_to_change_the_protocol_has_no_body() -> None:
    offer = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    (taken,) = read([offer]).taken
    assert taken.trailers == (), "it has ended"
    reading = read([offer[:-2] + b"Content-Length: 1\r\n\r\na"])
    assert reading.error is not None
    assert reading.error.status == 400
