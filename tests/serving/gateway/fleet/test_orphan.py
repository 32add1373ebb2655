"""What a kept connection tells of the handler that its gateway has left behind."""

from __future__ import annotations

import asyncio
import socket

import pytest

from hotplate.serving.gateway.fleet.orphan import SLACK_MS, Orphan, is_asked

TIMES = {"quiet_s": 1.0, "most_s": 60.0}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_an_answer_that_begins_now_ends_with_its_last_byte(answer: bytes, step: int) -> None:
    orphan = Orphan(asked=True, now=0.0)
    for at in range(0, len(answer), step):
        assert not orphan.ended
        orphan.take(answer[at : at + step], 50.0)
    assert orphan.ended and orphan.answered
    assert not orphan.is_open(50.0, **TIMES)


def test_who_says_nothing_is_waited_for_until_the_time_limit() -> None:
    orphan = Orphan(asked=True, now=0.0)
    assert orphan.is_open(59.9, **TIMES)
    assert not orphan.is_open(60.1, **TIMES)


def test_an_answer_that_had_begun_ends_with_its_last_chunk_or_is_quiet() -> None:
    streaming, idle = Orphan(asked=False, now=0.0), Orphan(asked=False, now=0.0)
    for at in (0.9, 1.8):
        streaming.take(b"5\r\ntoken\r\n", at)
    assert streaming.is_open(2.7, **TIMES)
    assert not idle.is_open(1.1, **TIMES)
    streaming.take(b"0\r\n\r\n", 2.7)
    assert streaming.answered


def test_a_connection_that_ends_without_a_word_has_answered_nothing() -> None:
    silent, until_end = Orphan(asked=True, now=0.0), Orphan(asked=True, now=0.0)
    until_end.take(b"HTTP/1.0 200 OK\r\n\r\nall", 1.0)
    for orphan in (silent, until_end):
        assert not orphan.ended
        orphan.take(b"", 2.0)
    assert (silent.ended, silent.answered) == (True, False)
    assert (until_end.ended, until_end.answered) == (True, True)


async def test_the_kernel_says_whether_a_request_was_sent_last() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as here,
        server.accept()[0] as there,
    ):
        here.sendall(b"request")
        await asyncio.sleep(3 * SLACK_MS / 1000)
        assert is_asked(here)
        there.sendall(b"answer")
        await asyncio.sleep(3 * SLACK_MS / 1000)
        assert not is_asked(here)
