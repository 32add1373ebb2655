"""The relay of storms loses what it is told to lose, and says nothing."""

from __future__ import annotations

import asyncio

from loadtests.systems.silent_relay import SilentRelay
from tests.support.patience import until


async def test_one_direction_is_lost_and_its_connections_end_when_it_is_whole() -> None:
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.append(line)
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    async with server, SilentRelay(port) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"one\n")
        assert await reader.readline() == b"one\n"
        with relay.cut("from"):
            writer.write(b"two\n")
            await until(lambda: heard == [b"one\n", b"two\n"])
            await until(lambda: relay.lost_bytes == 4)
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        with relay.cut("to"):
            writer.write(b"three\n")
            await until(lambda: relay.lost_bytes == 10)
        assert await reader.read() == b""
        assert heard == [b"one\n", b"two\n"]
        writer.close()
