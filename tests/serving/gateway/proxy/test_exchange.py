from __future__ import annotations

import asyncio

import pytest

from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def test_a_request_and_its_answer_pass_through(kitchen: Kitchen) -> None:
    await kitchen.wake()
    answer = await kitchen.ask("/echo?x=1", method="POST", body=b"hello", accept="a/b")
    assert (answer.status, answer.body) == (200, b"hello")
    [request] = kitchen.backend.requests
    assert (request.method, request.target) == ("POST", "/echo?x=1")
    assert request.headers["accept"] == "a/b"
    assert request.headers["host"] == "model.test"


async def test_headers_of_the_connection_are_replaced_and_origins_are_added(
    kitchen: Kitchen,
) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask(
        "/x",
        x_yatai_api_token="secret",
        connection="keep-alive, x-mine",
        x_mine="1",
        te="gzip;q=0.5, trailers",
        proxy_authorization="p",
        x_forwarded_for="10.0.0.1",
        x_request_id="mine-7",
        authorization="Bearer of-the-service",
    )
    headers = kitchen.backend.requests[0].headers
    for gone in ("x-yatai-api-token", "x-mine", "proxy-authorization"):
        assert gone not in headers
    assert (headers["te"], headers["connection"]) == ("trailers", "TE"), "it is ours now"
    assert headers["x-forwarded-for"] == "10.0.0.1, 127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-host"] == "model.test"
    assert headers["x-request-id"] == answer.headers["x-request-id"] == "mine-7"
    assert headers["authorization"] == "Bearer of-the-service"


async def test_what_a_replica_says_of_its_own_connection_goes_no_further(kitchen: Kitchen) -> None:
    async def chatty(request: Request, connection: Connection) -> None:
        connection.answer(
            extra="Connection: keep-alive, X-Mine, Set-Cookie\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n"
            "X-Other: 2\r\nSet-Cookie: a=b\r\n"
        )

    kitchen.backend.on("/chatty", chatty)
    await kitchen.wake()
    headers = (await kitchen.ask("/chatty")).headers
    assert (headers["x-other"], headers["set-cookie"]) == ("2", "a=b")
    assert not {"x-mine", "keep-alive", "connection"} & headers.keys()


async def test_a_request_without_an_id_gets_one_of_its_own(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    first = (await caller.ask("/a")).headers["x-request-id"]
    second = (await caller.ask("/b")).headers["x-request-id"]
    assert first and second and first != second
    assert kitchen.backend.requests[0].headers["x-request-id"] == first


async def test_connections_are_kept_on_both_sides(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    for number in range(5):
        assert (await caller.ask(f"/{number}")).body == f"ok /{number}".encode()
    assert kitchen.backend.connections == 1


async def test_pipelined_requests_are_answered_one_after_another(kitchen: Kitchen) -> None:
    await kitchen.wake(concurrency=4)
    caller = await kitchen.caller()
    wanted = [f"/p{number}" for number in range(40)]
    caller.send_raw(b"".join(f"GET {t} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for t in wanted))
    assert [(await caller.answer()).body.decode() for _ in wanted] == [f"ok {t}" for t in wanted]
    assert kitchen.backend.peak == 1


async def test_a_pipelined_body_stays_with_its_request(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    for body in (b"one", b"two", b"three"):
        caller.send("/echo", method="POST", body=body)
    assert [(await caller.answer()).body for _ in range(3)] == [b"one", b"two", b"three"]


async def test_chunked_bodies_pass_both_ways_and_keep_the_connection(kitchen: Kitchen) -> None:
    async def shout(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        for piece in (request.body, b"!"):
            connection.chunk(piece)
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/shout", shout)
    await kitchen.wake()
    caller = await kitchen.caller()
    for _ in range(2):
        caller.send_raw(
            b"POST /shout HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        answer = await caller.answer()
        assert answer.body == b"abcde!"
        assert answer.headers["transfer-encoding"] == "chunked"
    assert kitchen.backend.requests[0].headers["transfer-encoding"] == "chunked"
    assert kitchen.backend.connections == 1


FORBIDDEN = b"Content-Length: 9\r\nHost: b\r\nAuthorization: x\r\nX-YATAI-API-TOKEN: x\r\n"


async def test_trailers_pass_both_ways_but_for_those_that_may_not_be_there(
    kitchen: Kitchen,
) -> None:
    seen: list[list[bytes]] = []

    async def sum_up(request: Request, connection: Connection) -> None:
        seen.append(connection.trailers)
        connection.begin_chunks("Trailer: X-Sum\r\n")
        connection.chunk(request.body)
        connection.writer.write(b"0\r\nX-Sum: 7\r\nSet-Cookie: x\r\n\r\n")

    kitchen.backend.on("/sum", sum_up)
    caller = await kitchen.caller()
    ask = (
        b"POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Digest\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Digest: 1\r\n" + FORBIDDEN + b"\r\n"
    )
    caller.send_raw(ask)
    await until(lambda: kitchen.server.queue.queued == 1)
    await kitchen.wake()
    for _ in range(2):  # at first it had waited whole, then its slot waited
        answer = await caller.answer()
        assert (answer.body, answer.headers["trailer"]) == (b"abc", "x-sum")
        assert caller.trailers == [b"X-Sum: 7"]
        assert seen.pop() == [b"X-Digest: 1"]
        assert kitchen.backend.requests[-1].headers["trailer"] == "X-Digest"
        caller.send_raw(ask)
    await caller.answer()
    caller.send_raw(b"GET /sum HTTP/1.0\r\n\r\n")
    assert (await caller.answer()).body == b""
    assert await caller.ended(), "a caller of HTTP/1.0 gets no trailers"


@pytest.mark.parametrize(
    ("parent", "passes"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later", True),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("mine", False),
    ],
)
async def test_a_trace_that_can_be_read_goes_on(
    kitchen: Kitchen, parent: str, passes: bool
) -> None:
    await kitchen.wake()
    await kitchen.ask("/x", traceparent=parent, tracestate="a=1,b=2")
    headers = kitchen.backend.requests[0].headers
    assert headers.get("traceparent") == (parent if passes else None)
    assert headers.get("tracestate") == ("a=1,b=2" if passes else None)


async def test_head_has_the_length_and_no_body(kitchen: Kitchen) -> None:
    async def measure(request: Request, connection: Connection) -> None:
        connection.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")

    kitchen.backend.on("/measure", measure)
    await kitchen.wake()
    caller = await kitchen.caller()
    for _ in range(2):
        caller.send("/measure", method="HEAD")
        answer = await caller.answer(to_head=True)
        assert answer.headers["content-length"] == "99"
    assert (await caller.ask("/after")).body == b"ok /after"
    assert kitchen.backend.connections == 1


async def test_answers_without_a_body_keep_the_connection(kitchen: Kitchen) -> None:
    async def empty(request: Request, connection: Connection) -> None:
        connection.writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    kitchen.backend.on("/empty", empty)
    await kitchen.wake()
    caller = await kitchen.caller()
    assert (await caller.ask("/empty")).status == 204
    assert (await caller.ask("/after")).body == b"ok /after"


async def test_an_answer_that_ends_with_the_connection_arrives_whole(kitchen: Kitchen) -> None:
    async def old(request: Request, connection: Connection) -> None:
        connection.writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        connection.writer.close()

    kitchen.backend.on("/old", old)
    await kitchen.wake()
    caller = await kitchen.caller()
    answer = await caller.ask("/old")
    assert (answer.body, answer.headers["transfer-encoding"]) == (b"all of it", "chunked")
    assert (await caller.ask("/after")).body == b"ok /after"


async def test_a_caller_of_http_1_0_gets_no_chunks(kitchen: Kitchen) -> None:
    async def pieces(request: Request, connection: Connection) -> None:
        connection.begin_chunks()
        connection.chunk(b"abc")
        connection.writer.write(b"0\r\n\r\n")

    kitchen.backend.on("/pieces", pieces)
    await kitchen.wake()
    caller = await kitchen.caller()
    caller.send_raw(b"GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = await caller.answer()
    assert (answer.body, answer.headers["connection"]) == (b"abc", "close")
    assert kitchen.backend.requests[0].headers["host"] == kitchen.backend.address


async def test_a_caller_of_http_1_0_keeps_its_connection_if_it_asks_to(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.caller()
    for _ in range(2):
        caller.send_raw(b"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await caller.answer()
        assert (answer.body, answer.headers["connection"]) == (b"ok /x", "keep-alive")
    caller.send_raw(b"GET /y HTTP/1.0\r\n\r\n")
    assert (await caller.answer()).headers["connection"] == "close"
    assert await caller.ended()


async def test_nothing_waits_for_a_buffer_to_fill_on_either_side(kitchen: Kitchen) -> None:
    """TCP's own (Nagle's) is off; 200 small pieces there and back take no time."""
    await kitchen.wake()
    caller = await kitchen.caller()
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        caller.send_raw(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
        await asyncio.sleep(0)
        caller.send_raw(b"b")
        assert (await caller.answer()).body == b"ab"
    assert asyncio.get_running_loop().time() - began < 2.0, "Nagle's would take 40 ms for each"


async def test_an_early_answer_arrives_and_ends_both_connections(kitchen: Kitchen) -> None:
    async def early(request: Request, connection: Connection) -> None:
        connection.answer(b"no, thanks", "403 Forbidden")

    kitchen.backend.on("/early", early, raw=True)
    await kitchen.wake(2)
    caller = await kitchen.caller()
    caller.send_raw(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
    caller.send_raw(bytes(100_000))
    answer = await caller.answer()
    assert (answer.status, answer.body) == (403, b"no, thanks")
    assert answer.headers["connection"] == "close"
    caller.send_raw(bytes(900_000))
    assert await caller.ended()
    assert (await kitchen.ask("/after")).body == b"ok /after"
    assert kitchen.backend.connections == 2


async def test_a_target_in_absolute_form_names_its_host(kitchen: Kitchen) -> None:
    await kitchen.wake()
    await kitchen.ask("http://other.test:80/path?q=1")
    [request] = kitchen.backend.requests
    assert (request.target, request.headers["host"]) == ("/path?q=1", "other.test:80")
