"""Heads that have come before: a shorter way, and the same outcome."""

from __future__ import annotations

from itertools import permutations

from tests.support.gateway.backends import Connection, Request
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n"
WAYS = {
    "whole": (HEAD + b"hello",),
    "in two": (HEAD, b"hello"),
    "after an interim answer": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"hello",),
    "head in two": (HEAD[:20], HEAD[20:] + b"hello"),
}


async def test_an_answer_is_the_same_in_whatever_pieces_it_comes(kitchen: Kitchen) -> None:
    async def say(request: Request, connection: Connection) -> None:
        for piece in WAYS[request.headers["way"]]:
            connection.writer.write(piece)
            await connection.writer.drain()
            await until(lambda: not connection.writer.transport.get_write_buffer_size())

    kitchen.backend.on("/say", say)
    await kitchen.wake()
    caller = await kitchen.caller()
    ids = set()
    for way in [way for order in permutations(WAYS) for way in order]:
        answer = await caller.ask("/say", way=way)
        assert (answer.status, answer.body) == (200, b"hello")
        assert answer.headers["content-type"] == "text/plain"
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 24 * len(WAYS)
    assert kitchen.backend.connections == 1


async def test_what_follows_a_known_answer_is_never_taken_for_another(kitchen: Kitchen) -> None:
    async def say(request: Request, connection: Connection) -> None:
        evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        connection.writer.write(HEAD + b"hello" + (evil if request.target == "/say?evil" else b""))

    kitchen.backend.on("/say", say)
    await kitchen.wake()
    caller = await kitchen.caller()
    for target in ("/say", "/say?evil", "/say", "/say?evil", "/say"):
        assert (await caller.ask(target)).body == b"hello"
    assert kitchen.backend.connections == 3


async def test_the_same_head_to_a_head_request_has_no_body(kitchen: Kitchen) -> None:
    async def say(request: Request, connection: Connection) -> None:
        connection.writer.write(HEAD + (b"" if request.method == "HEAD" else b"hello"))

    kitchen.backend.on("/say", say)
    await kitchen.wake()
    caller = await kitchen.caller()
    for method in ("GET", "HEAD", "GET", "HEAD"):
        caller.send("/say", method=method)
        answer = await caller.answer(to_head=method == "HEAD")
        assert answer.headers["content-length"] == "5"
        assert answer.body == (b"" if method == "HEAD" else b"hello")
