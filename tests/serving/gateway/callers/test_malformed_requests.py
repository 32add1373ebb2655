from __future__ import annotations

import hashlib

import pytest

from hotplate.serving.gateway.limits import Limits
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
LIMITS = Limits()

MALFORMED = {
    "both lengths": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "lengths in reverse": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    "differing lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "folded line": HEAD + b"X: a\r\n b\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: a\n\n",
    "bare line feed in a header": b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "bare carriage return": b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
    "space before colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two tokens": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nAuthorization: y\r\n\r\n",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no path": b"GET path HTTP/1.1\r\nHost: a\r\n\r\n",
    "old coding": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "upgrade with a body": HEAD
    + b"Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\na",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_request_is_a_400_and_reaches_no_replica(
    kitchen: Kitchen, data: bytes
) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    caller.send_raw(data)
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (400, "bad_request")
    assert answer.headers["connection"] == "close"
    assert await caller.ended()
    assert kitchen.server.queue.idle
    assert not [r for r in kitchen.backend.requests if r.target != "/echo" or r.body]


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GET /" + b"a" * LIMITS.target_bytes + b" HTTP/1.1\r\n", 414, "target_too_long"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 201 + b"\r\n", 431, "head_too_large"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * LIMITS.head_bytes + b"\r\n\r\n", 431, "head_too_large"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "unknown_transfer_coding"),
        (HEAD + b"Expect: wonders\r\n\r\n", 417, "expectation_refused"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501, "method_refused"),
    ],
)
async def test_what_is_over_the_limits_has_its_own_status(
    kitchen: Kitchen, data: bytes, status: int, code: str
) -> None:
    caller = await kitchen.caller()
    caller.send_raw(data)
    answer = await caller.answer()
    assert (answer.status, answer.error["code"]) == (status, code)
    assert await caller.ended()


async def test_one_endless_header_line_is_stopped(kitchen: Kitchen) -> None:
    caller = await kitchen.caller()
    caller.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
    for _ in range(40):
        caller.send_raw(b"a" * 8192)
        await caller.writer.drain()
    assert (await caller.answer()).status == 431


async def test_requests_before_a_malformed_one_are_answered_first(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    caller.send_raw(b"GET /good HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n")
    assert (await caller.answer()).body == b"ok /good"
    assert (await caller.answer()).status == 400
    assert await caller.ended()


async def test_a_body_over_the_limit_is_a_413_announced_or_not(kitchen: Kitchen) -> None:
    await kitchen.serve(body_limit_bytes=10)
    await kitchen.wake()
    announced = await kitchen.ask("/echo", method="POST", body=b"x" * 11)
    assert (announced.status, announced.error["code"]) == (413, "body_too_large")
    assert not kitchen.backend.requests
    caller = await kitchen.caller()
    caller.send_raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n")
    caller.send_raw(b"8\r\n12345678\r\n")
    answer = await caller.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert not kitchen.backend.requests, "it never had a slot"
    assert (await kitchen.ask("/echo", method="POST", body=b"x" * 10)).status == 200


async def test_a_body_that_grows_over_the_limit_in_its_slot_gives_the_slot_back(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(body_limit_bytes=100_000)
    await kitchen.wake()
    caller = await kitchen.caller()
    piece = b"fa00\r\n" + bytes(64_000) + b"\r\n"
    caller.send_raw(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + piece + b"2710\r\n" + bytes(5000)
    )
    await until(lambda: kitchen.backend.requests)
    caller.send_raw(bytes(5000) + b"\r\n" + piece)
    assert (await caller.answer()).status == 413
    await until(lambda: kitchen.server.queue.in_flight == 0)


async def test_a_refused_body_that_was_sent_ahead_is_answered_in_its_turn(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(body_limit_bytes=10)
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    caller.send_raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n0\r\n\r\n")
    await until(lambda: kitchen.backend.running == 1)
    kitchen.backend.gate.set()
    assert (await caller.answer()).body == b"slow"
    assert (await caller.answer()).status == 413


async def test_a_refused_body_is_read_to_its_end_so_that_the_answer_arrives(
    kitchen: Kitchen,
) -> None:
    await kitchen.serve(body_limit_bytes=10)
    caller = await kitchen.caller()
    size = 5 << 20
    caller.send_raw(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
    assert (await caller.answer()).status == 413
    assert await caller.ended()


async def test_who_is_refused_is_told_at_once_that_nothing_follows(kitchen: Kitchen) -> None:
    kitchen.limit(linger_s=60.0)
    caller = await kitchen.caller()
    caller.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 9\r\n\r\nhalf")
    assert (await caller.answer()).status == 400
    assert await caller.ended()


async def test_pickles_are_refused_from_outside_only(kitchen: Kitchen) -> None:
    await kitchen.wake()
    request = {"method": "POST", "body": b"x", "content_type": "Application/vnd.bentoml+PICKLE"}
    answer = await kitchen.ask("/echo", **request)
    assert (answer.status, answer.error["code"]) == (415, "pickle_refused")
    await kitchen.serve(internal=True, secret_digest=hashlib.sha256(b"ours").hexdigest())
    assert (await kitchen.ask("/echo", **request, Hotplate_Secret="ours")).body == b"x"


@pytest.mark.parametrize("ending", ["", "?a=b"])
async def test_what_replicas_tell_gateways_is_not_told_to_callers(
    kitchen: Kitchen, ending: str
) -> None:
    await kitchen.wake()
    for internal in (False, True):
        digest = hashlib.sha256(b"ours").hexdigest()
        await kitchen.serve(internal=internal, secret_digest=digest)
        answer = await kitchen.ask(f"/hotplate/running{ending}", Hotplate_Secret="ours")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert not kitchen.backend.requests


async def test_only_a_known_token_is_let_in_and_the_service_never_sees_it(
    kitchen: Kitchen,
) -> None:
    digests = tuple(hashlib.sha256(token).hexdigest() for token in (b"one", b"two"))
    await kitchen.serve(token_digests=digests)
    await kitchen.wake()
    for wrong in ({}, {"authorization": "Bearer three"}, {"authorization": "Basic one"}):
        for target in ("/x", "/readyz", "/schema.json"):
            answer = await kitchen.ask(target, **wrong)
            assert (answer.status, answer.error["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "bearer"
    assert not kitchen.backend.requests
    for token in ("one", "two"):
        assert (await kitchen.ask("/x", authorization=f"Bearer {token}")).status == 200
    assert "authorization" not in kitchen.backend.requests[-1].headers


async def test_no_token_at_all_opens_a_route_with_an_empty_list(kitchen: Kitchen) -> None:
    await kitchen.serve(token_digests=())
    assert (await kitchen.ask("/x", authorization="Bearer any")).status == 401


async def test_a_route_that_refuses_says_why_to_those_who_wait_too(kitchen: Kitchen) -> None:
    waiting = await kitchen.send("/x")
    await until(lambda: kitchen.server.queue.queued == 1)
    await kitchen.serve(refuse="The deployment was terminated; start it again.")
    for answer in (await waiting.answer(), await kitchen.ask("/x")):
        assert answer.status == 503
        assert answer.error == {
            "code": "route_refused",
            "message": "The deployment was terminated; start it again.",
        }


async def test_a_full_queue_rejects_with_retry_after(kitchen: Kitchen) -> None:
    await kitchen.serve(queue_limit=2)
    waiting = [await kitchen.caller() for _ in range(2)]
    for caller in waiting:
        caller.send("/x")
    await until(lambda: kitchen.server.queue.queued == 2)
    caller = await kitchen.caller()
    answer = await caller.ask("/x")
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    assert int(answer.headers["retry-after"]) >= 1
    waiting[0].leave()
    await until(lambda: kitchen.server.queue.queued == 1)
    caller.send("/y")
    await kitchen.wake()
    assert (await caller.answer()).body == b"ok /y"
    assert (await waiting[1].answer()).status == 200


async def test_bodies_of_waiting_requests_count(kitchen: Kitchen) -> None:
    """Whole ones in the queue, and those that still come: what has no room goes on in a file."""
    await kitchen.serve(queue_limit_bytes=300_000)
    server = kitchen.server
    callers = [await kitchen.caller() for _ in range(3)]
    bodies = [bytes(200_000), bytes(4 << 20)]
    callers[0].send("/echo", method="POST", body=bodies[0])
    await until(lambda: server.queue.queued_bytes >= 200_000)
    callers[1].send_raw(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\n" + bytes(1000)
    )
    await until(lambda: server.bodies.held_bytes)
    callers[1].send_raw(bytes((4 << 20) - 2000))
    await until(lambda: server.bodies.spooled_bytes >= (4 << 20) - 150_000)
    assert server.queue.queued_bytes + server.bodies.held_bytes <= 300_000
    answer = await callers[2].ask("/echo", method="POST", body=bytes(110_000))
    assert (answer.status, answer.error["code"]) == (429, "share_full")
    await kitchen.wake()
    callers[1].send_raw(bytes(1000))
    for caller, body in zip(callers, bodies, strict=False):
        assert (await caller.answer()).body == body
    await until(lambda: not server.queue.in_flight)
    assert server.bodies.spooled_bytes == server.bodies.held_bytes == 0


FORM = 'multipart/form-data; boundary="fOrM"'
PART = (
    b"--fOrM\r\nContent-Disposition: form-data; name=f\r\nContent-Type: %b\r\n\r\nx\r\n--fOrM--\r\n"
)


async def test_a_form_with_a_pickle_among_its_parts_is_refused(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    bad = PART % b"application/vnd.bentoml+PICKLE"
    caller.send("/slow")
    caller.send("/echo", method="POST", body=bad, Content_Type=FORM)  # its turn comes later
    kitchen.backend.gate.set()
    assert (await caller.answer()).status == 200
    assert (await caller.answer()).error["code"] == "pickle_refused"
    good = PART % b"image/png"
    assert (await caller.ask("/echo", method="POST", body=good, Content_Type=FORM)).body == good
    late = await kitchen.caller()
    late.send_raw(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        % (FORM.encode(), 100_000 + len(bad))
    )
    late.send_raw(bytes(100_000) + bad)  # most of it has gone to the replica by then
    assert (await late.answer()).status == 415
    await kitchen.serve(internal=True, secret_digest=hashlib.sha256(b"ours").hexdigest())
    ours = {"Hotplate_Secret": "ours"}
    answer = await kitchen.ask("/echo", method="POST", body=bad, Content_Type=FORM, **ours)
    assert answer.body == bad
