"""Recorded clients: what they repeat, and what they write of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loadtests.history.files import client_observations
from loadtests.history.observations import Outcome
from loadtests.history.operation import Operation
from loadtests.programs.recorded_clients import Manner, run

NUMBERS = range(1, 8)


async def ends_and_repeats(
    folder: Path, cuts: int, repeats: int
) -> tuple[dict[int, Outcome], list[int]]:
    """How each request ended, and which were repeated, at a server that cuts each so many times
    before it answers."""
    left = dict.fromkeys(NUMBERS, cuts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                operation = Operation(int(head.split()[1].rpartition(b"/")[2]))
                await reader.readexactly(len(operation.body))
                left[operation.number] -= 1
                if left[operation.number] >= 0:
                    break
                answer = operation.answer
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass  # the client has left
        writer.close()

    record = folder / "record"
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await run(port, NUMBERS, 2, Manner(0.0, repeats), record)
    _, repeated, ended = client_observations(record)
    return {end.request: end.outcome for end in ended}, [one.request for one in repeated]


async def test_what_may_run_twice_is_repeated_when_its_connection_ends(tmp_path: Path) -> None:
    ended, repeated = await ends_and_repeats(tmp_path, cuts=1, repeats=1)
    assert ended == {n: "answered" if n % 2 == 0 else "cut" for n in NUMBERS}
    assert sorted(repeated) == [2, 4, 6]


async def test_no_more_often_than_is_said(tmp_path: Path) -> None:
    ended, repeated = await ends_and_repeats(tmp_path, cuts=2, repeats=1)
    assert ended == dict.fromkeys(NUMBERS, "cut")
    assert sorted(repeated) == [2, 4, 6]


async def test_nothing_is_repeated_unless_it_is_said(tmp_path: Path) -> None:
    ended, repeated = await ends_and_repeats(tmp_path, cuts=1, repeats=0)
    assert ended == dict.fromkeys(NUMBERS, "cut")
    assert repeated == []
