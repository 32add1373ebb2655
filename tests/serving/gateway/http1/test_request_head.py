"""What a replica gets of a caller's head: as it came, written anew, or not at all."""

from __future__ import annotations

import math

import pytest

from hotplate.serving.gateway.errors import BadRequest, MethodRefused, UnknownCoding
from hotplate.serving.gateway.http1.fields import Field, last_chunk
from hotplate.serving.gateway.http1.request_head import (
    REQUEST_ID_BYTES,
    RequestHead,
    for_owner,
    read_request,
)
from hotplate.serving.gateway.protocol.headers import DUE, PASSED, SECRET, TASK_ID

HOST = (b"Host", b"a")
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = (b"traceparent", PARENT)
CHUNKED = (b"Transfer-Encoding", b"chunked")


def head_of(
    *fields: Field,
    method: bytes = b"GET",
    target: bytes = b"/p?q=1",
    http10: bool = False,
    peer: bytes = b"10.0.0.1",
    proto: bytes = b"https",
) -> RequestHead:
    return read_request(method, target, fields, http10=http10, peer=peer, proto=proto)


def lines_of(head: RequestHead, *, with_authorization: bool = True) -> list[bytes]:
    sent = head.to_replica(b"default", b"id", with_authorization=with_authorization)
    assert sent.endswith(b"\r\n\r\n")
    return sent[:-4].split(b"\r\n")


def test_a_replica_gets_who_asked_and_by_what() -> None:
    assert lines_of(head_of(HOST, (b"X-Own", b"1"))) == [
        b"GET /p?q=1 HTTP/1.1",
        b"Host: a",
        b"X-Own: 1",
        b"X-Forwarded-For: 10.0.0.1",
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-Host: a",
        b"X-Request-Id: id",
    ]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ([(b"X-Forwarded-For", b"9.9.9.9")], b"X-Forwarded-For: 9.9.9.9, 10.0.0.1"),
        ([(b"X-Forwarded-Proto", b"http")], b"X-Forwarded-Proto: http"),
        ([(b"X-Forwarded-Host", b"b")], b"X-Forwarded-Host: b"),
        ([CHUNKED], b"Transfer-Encoding: chunked"),
        ([CHUNKED, (b"Trailer", b"Sum")], b"Trailer: Sum"),
        ([(b"TE", b"gzip, trailers;q=0.5")], b"TE: trailers"),
        ([(b"Connection", b"Upgrade"), (b"Upgrade", b"WebSocket")], b"Upgrade: websocket"),
        ([(b"Connection", b"Upgrade"), (b"Upgrade", b"WebSocket")], b"Connection: Upgrade"),
        ([(b"Content-Length", b"3")], b"Content-Length: 3"),
        ([TRACED], b"traceparent: " + PARENT),
        ([TRACED, (b"tracestate", b"a=1")], b"tracestate: a=1"),
        ([(b"Connection", b"authorization"), (b"Authorization", b"x")], b"Authorization: x"),
        ([(b"Priority", b"u=1"), (b"Priority", b"i")], b"Priority: i"),
    ],
)
def test_a_replica_gets_this_line(fields: list[Field], line: bytes) -> None:
    assert line in lines_of(head_of(HOST, *fields))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ([(b"Keep-Alive", b"5")], b"keep-alive"),
        ([(b"Connection", b"close, X-Own"), (b"x-own", b"1")], b"x-own"),
        ([(b"Connection", b"close")], b"connection"),
        ([(b"Upgrade", b"websocket")], b"upgrade"),
        ([(b"Trailer", b"Sum")], b"trailer"),
        ([(b"TE", b"gzip")], b"te"),
        ([(b"tracestate", b"a=1")], b"tracestate"),
        ([(b"traceparent", b"ff" + PARENT[2:]), (b"tracestate", b"a=1")], b"traceparent"),
        ([(b"traceparent", b"ff" + PARENT[2:]), (b"tracestate", b"a=1")], b"tracestate"),
        ([(b"X-Yatai-API-Token", b"x")], b"x-yatai-api-token"),
        ([(SECRET, b"x")], SECRET),
        ([(TASK_ID, b"x")], TASK_ID),
        ([(DUE, b"1")], DUE),
        ([(b"Expect", b"100-continue")], b"expect"),
        ([(b"X-Own", b"1")], b"content-length"),
    ],
)
def test_a_replica_gets_no_such_line(fields: list[Field], name: bytes) -> None:
    names = [line.partition(b":")[0].lower() for line in lines_of(head_of(HOST, *fields))[1:]]
    assert name not in names
    assert names.count(b"host") == 1


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_a_method_with_a_body_says_that_it_has_none(method: bytes) -> None:
    assert b"Content-Length: 0" in lines_of(head_of(HOST, method=method))


def test_only_the_callers_that_pass_authorization_on_do_so() -> None:
    head = head_of(HOST, (b"Authorization", b"Bearer x"), (b"X-Own", b"1"))
    for with_authorization in (True, False, True):
        lines = lines_of(head, with_authorization=with_authorization)
        assert (b"Authorization: Bearer x" in lines) is with_authorization
        assert b"X-Own: 1" in lines


def test_a_prefix_is_for_one_request_only() -> None:
    head = head_of(HOST)
    usual = head.to_replica(b"r", b"id", with_authorization=True)
    prefixed = head.to_replica(b"r", b"id", with_authorization=True, prefix=b"/v1")
    assert prefixed == usual.replace(b"GET /p", b"GET /v1/p")
    assert head.to_replica(b"r", b"id", with_authorization=True) == usual


def test_what_was_written_once_is_not_written_again() -> None:
    for with_authorization in (True, False):
        head = head_of(HOST)
        head.to_replica(b"r", b"id", with_authorization=with_authorization)
        written = head.written
        assert written is not None
        head.to_replica(b"r", b"id", with_authorization=with_authorization)
        assert head.written is written


def test_a_caller_that_names_no_host_has_the_replicas() -> None:
    head = head_of(http10=True)
    for default in (b"r", b"s"):
        sent = head.to_replica(default, b"id", with_authorization=True)
        assert b"\r\nHost: %b\r\n" % default in sent
        assert b"\r\nX-Forwarded-Host: %b\r\n" % default in sent


def test_another_gateway_has_said_already_for_whom_it_asks() -> None:
    fields = [HOST, (b"X-Forwarded-For", b"9.9.9.9"), (DUE, b"12.5"), (SECRET, b"s")]
    passed = head_of(*fields, peer=b"")
    assert passed.forwarded[0] == b"9.9.9.9"
    assert (passed.due_in_s, passed.secret, passed.repeats) == (12.5, b"s", False)
    assert head_of(*fields).due_in_s == math.inf
    assert head_of(HOST, peer=b"").forwarded[0] == b""


@pytest.mark.parametrize(
    ("fields", "http10", "keep_alive"),
    [
        ([], False, True),
        ([(b"Connection", b"close")], False, False),
        ([], True, False),
        ([(b"Connection", b"Keep-Alive")], True, True),
    ],
)
def test_whether_a_connection_is_kept(fields: list[Field], http10: bool, keep_alive: bool) -> None:
    assert head_of(HOST, *fields, http10=http10).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("fields", "repeats"),
    [
        ([], True),
        ([(b"X-Request-Id", b"1")], False),
        ([TRACED], False),
        ([(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")], False),
        ([(DUE, b"1")], False),
    ],
)
def test_what_is_one_requests_own_does_not_come_again(fields: list[Field], repeats: bool) -> None:
    assert head_of(HOST, *fields).repeats is repeats


def test_ids_are_bounded() -> None:
    for length, expected in ((REQUEST_ID_BYTES, REQUEST_ID_BYTES), (REQUEST_ID_BYTES + 1, 0)):
        head = head_of(HOST, (b"X-Request-Id", b"x" * length))
        assert len(head.given_id) == expected


def test_expectations_and_trailers_are_of_http_1_1() -> None:
    fields = [HOST, (b"Expect", b"100-Continue"), (b"TE", b"trailers")]
    for http10 in (False, True):
        head = head_of(*fields, http10=http10)
        assert head.expects_continue is not http10
        assert (b"TE: trailers" in lines_of(head)) is not http10
    assert not head_of(HOST, (b"Expect", b"")).expects_continue


def test_an_upgrade_takes_no_trailers() -> None:
    upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    assert b"TE: trailers" not in lines_of(head_of(HOST, *upgrade, (b"TE", b"trailers")))


def test_a_field_is_found_by_its_name() -> None:
    head = head_of(HOST, (b"X-Own", b" a:b "), (b"X-Own", b"2"), (b"Content-Length", b"0"))
    assert head.value(b"x-own") == b"a:b"
    assert head.value(b"content-length") == b""
    assert not head.has_body
    assert head_of(HOST, CHUNKED).has_body
    assert head_of(HOST, (b"Content-Length", b"1")).has_body


@pytest.mark.parametrize(
    ("error", "fields", "line"),
    [
        (MethodRefused, [HOST], {"method": b"CONNECT"}),
        (BadRequest, [], {}),
        (BadRequest, [HOST, HOST], {}),
        (BadRequest, [HOST, (b"Authorization", b"a"), (b"authorization", b"b")], {}),
        (BadRequest, [HOST, (b"Content-Type", b"a"), (b"content-type", b"b")], {}),
        (BadRequest, [HOST], {"target": b"p"}),
        (BadRequest, [HOST], {"target": b"*"}),
        (BadRequest, [HOST, CHUNKED], {"http10": True}),
        (UnknownCoding, [HOST, (b"Transfer-Encoding", b"gzip")], {}),
    ],
)
def test_what_replicas_might_read_otherwise_is_refused(
    error: type[BadRequest], fields: list[Field], line: dict[str, bytes]
) -> None:
    with pytest.raises(error):
        head_of(*fields, **line)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "host", "origin_form"),
    [
        (b"HTTPS://b:1/x?y", b"b:1", b"/x?y"),
        (b"http://b", b"b", b"/"),
        (b"/x", b"a", b"/x"),
    ],
)
def test_a_target_names_its_host_or_none(target: bytes, host: bytes, origin_form: bytes) -> None:
    head = head_of(HOST, target=target)
    assert (head.host, head.target) == (host, origin_form)
    assert head.path == origin_form.partition(b"?")[0]


def test_the_owner_gets_what_this_gateway_knows() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert for_owner(head, b"", math.inf, b"") == head
    lines = SECRET + b": s\r\n" + DUE + b": 1.250\r\n" + PASSED + b": 0123456789abcdef\r\n"
    assert for_owner(head, b"s", 1.25, b"0123456789abcdef") == head[:-2] + lines + b"\r\n"


def test_only_another_gateway_says_by_what_a_request_can_be_had_back() -> None:
    passed = (PASSED, b"0123456789abcdef")
    assert head_of(HOST, passed).passed == b""
    relayed = head_of(HOST, passed, peer=b"")
    assert (relayed.passed, relayed.lines) == (passed[1], [])


def test_what_changes_a_message_does_not_stand_behind_it() -> None:
    assert last_chunk([]) == b"0\r\n\r\n"
    trailers = [(b"Sum", b"1"), (b"Content-Length", b"2"), (b"Set-Cookie", b"3"), (b"B", b"4")]
    assert last_chunk(trailers) == b"0\r\nSum: 1\r\nB: 4\r\n\r\n"


@pytest.mark.parametrize(
    ("cookies", "passed_on"),
    [
        (b"hotplate_sign_in=secret", None),
        (b"a=1; hotplate_sign_in=secret; b=2", b"a=1; b=2"),
        (b"a=1;hotplate_sign_in=secret", b"a=1"),
        (b" Hotplate_Sign_In =secret;a=1", b"a=1"),
        (
            b"a=hotplate_sign_in; hotplate_sign_in_too=1",
            b"a=hotplate_sign_in; hotplate_sign_in_too=1",
        ),
    ],
)
def test_a_browser_s_sign_in_to_the_platform_is_not_for_replicas(
    cookies: bytes, passed_on: bytes | None
) -> None:
    """Its cookies go to all ports of a host."""
    found = [line for line in lines_of(head_of(HOST, (b"cookie", cookies))) if b"ookie" in line]
    assert found == ([] if passed_on is None else [b"cookie: " + passed_on])
