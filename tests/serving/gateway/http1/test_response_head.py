"""What a caller gets of a replica's head, and what the gateway responds itself."""

from __future__ import annotations

import pytest

from hotplate.serving.gateway.http1.fields import Field
from hotplate.serving.gateway.http1.request_head import RequestHead, read_request
from hotplate.serving.gateway.http1.response_head import (
    ResponseHead,
    is_interim,
    own_response,
    read_response,
)
from hotplate.serving.gateway.protocol.headers import ANSWER_BYTES

LENGTH = (b"Content-Length", b"5")
CHUNKED = (b"Transfer-Encoding", b"chunked")


def asked(method: bytes = b"GET", *, http10: bool = False) -> RequestHead:
    return read_request(
        method, b"/", [(b"Host", b"a")], http10=http10, peer=b"10.0.0.1", proto=b"http"
    )


def head_of(
    *fields: Field, status: int = 200, reason: bytes = b"OK", worker: bool = False
) -> ResponseHead:
    return read_response(status, reason, fields, keep_alive=True, worker=worker)


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("http10", [True, False])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (200, [LENGTH]),
        (200, [CHUNKED]),
        (200, [CHUNKED, (b"Trailer", b"Sum")]),
        (200, []),
        (204, [LENGTH]),
        (304, [LENGTH]),
        (304, []),
        (101, [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]),
    ],
)
def test_a_caller_is_told_where_a_response_ends(
    status: int, fields: list[Field], method: bytes, http10: bool, keep_alive: bool
) -> None:
    head = head_of(*fields, status=status)
    for _ in range(2):
        sent, chunked, kept = head.to_caller(
            asked(method, http10=http10), b"id", keep_alive=keep_alive
        )
        assert sent.endswith(b"\r\nX-Request-Id: id\r\n\r\n")
        lines = sent.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 %d OK" % status
        without_end = status == 200 and LENGTH not in fields and method != b"HEAD"
        assert chunked == (without_end and not http10)
        assert kept == (keep_alive and not (without_end and http10))
        assert (b"Transfer-Encoding: chunked" in lines) == chunked
        assert (b"Trailer: Sum" in lines) == (chunked and len(fields) == 2)
        assert (b"Content-Length: 5" in lines) == (LENGTH in fields and status != 204)
        upgrade = status == 101
        assert (b"Upgrade: websocket" in lines) == upgrade
        assert (b"Connection: Upgrade" in lines) == upgrade
        assert (b"Connection: close" in lines) == (not kept and not upgrade)
        assert (b"Connection: keep-alive" in lines) == (kept and http10 and not upgrade)


@pytest.mark.parametrize(
    ("status", "fields", "method", "ends"),
    [
        (200, [], b"GET", True),
        (200, [], b"HEAD", False),
        (200, [LENGTH], b"GET", False),
        (200, [CHUNKED], b"GET", False),
        (199, [], b"GET", False),
        (204, [], b"GET", False),
        (304, [], b"GET", False),
        (305, [], b"GET", True),
    ],
)
def test_only_what_has_no_length_ends_with_its_connection(
    status: int, fields: list[Field], method: bytes, ends: bool
) -> None:
    assert head_of(*fields, status=status).ends_with_connection(method) is ends


def test_a_replicas_own_id_is_passed_on_instead_of_ours() -> None:
    head = head_of(LENGTH, (b"x-request-id", b"its"))
    for keep_alive in (True, True, False):
        sent, _, _ = head.to_caller(asked(), b"ours", keep_alive=keep_alive)
        assert b"ours" not in sent
        assert b"x-request-id: its\r\n" in sent
        assert sent.endswith(b"\r\n\r\n")
        assert sent.count(b"\r\n\r\n") == 1


def test_what_was_written_once_is_not_written_again() -> None:
    head = head_of(LENGTH)
    head.to_caller(asked(http10=True), b"1", keep_alive=True)
    head.to_caller(asked(b"HEAD"), b"2", keep_alive=True)
    head.to_caller(asked(), b"3", keep_alive=False)
    assert head.written is None
    head.to_caller(asked(), b"4", keep_alive=True)
    made = head.written
    assert made is not None
    head.to_caller(asked(), b"5", keep_alive=True)
    assert head.written is made


def test_what_is_the_connections_own_stays_here() -> None:
    head = head_of(
        (b"Connection", b"keep-alive"),
        (b"Connection", b"X-Own"),
        (b"x-own", b"1"),
        (b"Keep-Alive", b"5"),
        (b"Set-Cookie", b"a"),
        (b"Set-Cookie", b"b"),
    )
    assert head.lines == [b"Set-Cookie: a\r\n", b"Set-Cookie: b\r\n"]


@pytest.mark.parametrize(
    ("reason", "expected"), [(b"Fine \xe9", b"Fine \xe9"), (b"O\0", b""), (b"", b"")]
)
def test_a_reason_is_passed_on_if_it_can_be(reason: bytes, expected: bytes) -> None:
    assert head_of(reason=reason).reason == expected


@pytest.mark.parametrize("worker", [True, False])
def test_only_our_worker_says_how_much_is_for_the_caller(worker: bool) -> None:
    head = head_of(LENGTH, (ANSWER_BYTES, b"3"), worker=worker)
    assert head.content_length == 5
    sent, _, _ = head.to_caller(asked(), b"id", keep_alive=True)
    assert (b"Content-Length: 3" in sent) is worker
    assert head_of(LENGTH, worker=worker).answer_bytes is None


@pytest.mark.parametrize(
    ("status", "interim"), [(100, True), (101, False), (102, True), (199, True), (200, False)]
)
def test_another_head_follows_an_interim_one(status: int, interim: bool) -> None:
    assert is_interim(status) is interim


def test_a_status_has_three_digits() -> None:
    with pytest.raises(ValueError, match="99"):
        is_interim(99)


OWN = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: 2\r\n%b\r\n%b"


def test_our_own_response_says_what_the_caller_needs_to_know() -> None:
    assert own_response(200, b"{}", keep_alive=True) == OWN % (b"200 OK", b"", b"{}")
    assert own_response(200, b"{}", keep_alive=True, method=b"HEAD") == OWN % (b"200 OK", b"", b"")
    closing = own_response(
        401, b"{}", keep_alive=False, http10=True, request_id=b"id", more=b"A: b\r\n"
    )
    lines = b"A: b\r\nX-Request-Id: id\r\nWWW-Authenticate: Bearer\r\nConnection: close\r\n"
    assert closing == OWN % (b"401 Unauthorized", lines, b"{}")
    kept = own_response(429, b"{}", keep_alive=True, http10=True, retry_after_s=1.2)
    lines = b"Retry-After: 2\r\nConnection: keep-alive\r\n"
    assert kept == OWN % (b"429 Too Many Requests", lines, b"{}")


@pytest.mark.parametrize(("asked_s", "said_s"), [(0.0, 1), (1.0, 1), (1.01, 2)])
def test_a_caller_comes_back_in_whole_seconds(asked_s: float, said_s: int) -> None:
    sent = own_response(503, b"{}", keep_alive=True, retry_after_s=asked_s)
    assert b"\r\nRetry-After: %d\r\n" % said_s in sent


def test_a_replica_sets_cookies_of_its_own_but_signs_nobody_in_to_the_platform() -> None:
    head = head_of(
        LENGTH,
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"set-cookie", b"hotplate_sign_in=mine; Path=/"),
        (b"Set-Cookie", b" Hotplate_Sign_In = mine"),
    )
    assert head.lines == [b"Set-Cookie: a=1; Path=/\r\n"]
