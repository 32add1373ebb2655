"""Callers that send nothing more: those that wait for their answer, and those that have left."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.gateway.callers import Caller
from tests.support.gateway.kitchen import Kitchen
from tests.support.patience import until


async def final(caller: Caller) -> tuple[int, bytes]:
    """The answer, past interim ones."""
    while (head := await caller.head())[0] == 100:
        pass
    return head[0], await caller.reader.readexactly(int(head[1]["content-length"]))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_caller_that_has_closed_its_half_gets_its_answer(
    kitchen: Kitchen, version: str
) -> None:
    caller = await kitchen.caller()
    caller.send_raw(
        f"POST /echo HTTP/{version}\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".encode()
    )
    caller.writer.write_eof()
    await until(lambda: kitchen.server.queue.queued == 1)
    await asyncio.sleep(0.15)
    assert kitchen.server.queue.queued == 1, "it waits on, past the first looks"
    await kitchen.wake()
    assert await final(caller) == (200, b"abc")
    assert await caller.ended()


async def test_a_stream_goes_on_to_its_end_for_a_closed_half(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/a")
    caller.send("/b")
    caller.send("/slow")
    caller.send_raw(b"POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
    caller.writer.write_eof()
    assert await final(caller) == (200, b"ok /a")
    assert await final(caller) == (200, b"ok /b")
    kitchen.backend.gate.set()
    assert await final(caller) == (200, b"slow")
    assert await caller.ended()
    assert len(kitchen.backend.requests) == 3


async def test_where_nothing_is_won_by_knowing_nobody_is_asked(kitchen: Kitchen) -> None:
    await kitchen.wake()
    caller = await kitchen.send("/slow")
    caller.writer.write_eof()
    await until(lambda: kitchen.backend.running)
    await asyncio.sleep(0.15)  # past when it would have been asked
    kitchen.backend.gate.set()
    assert (await caller.head())[0] == 200, "an answer, and no interim one before it"


async def test_one_that_closed_frees_its_place_at_the_first_look_though_both_send_the_same(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.serving.gateway.callers.half_close.LOOKS_S", (0.02, 3600.0))
    for _ in range(5):
        caller = await kitchen.send("/x")
        await until(lambda: kitchen.server.queue.queued == 1)
        caller.writer.close()
        await until(lambda: kitchen.server.queue.queued == 0)
    assert kitchen.server.counters.left == 5


async def test_one_that_closed_its_half_first_and_the_rest_later_is_found_out(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.serving.gateway.callers.half_close.LOOKS_S", ())
    monkeypatch.setattr("hotplate.serving.gateway.callers.half_close.ASKS_S", 0.05)
    caller = await kitchen.send("/x")
    caller.writer.write_eof()
    await until(lambda: kitchen.server.queue.queued == 1)
    await asyncio.sleep(0.2)
    assert kitchen.server.queue.queued == 1
    caller.leave()
    await until(lambda: kitchen.server.queue.queued == 0)


async def test_half_a_request_and_then_nothing_is_no_request(kitchen: Kitchen) -> None:
    await kitchen.wake()
    for sent in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"):
        caller = await kitchen.caller()
        caller.send_raw(sent)
        caller.writer.write_eof()
        assert await caller.ended()
    assert kitchen.server.queue.idle
