"""The way out of a replica's network: an HTTP proxy, which may have one above itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from hotplate.serving.replica.inside.command.relay import Handler, Streams, proxy, to_port
from tests.support.patience import PATIENCE_S

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Servers:
    """Listen on loopback until the test is over."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._handling: set[asyncio.Task[object]] = set()
        self._callers: list[asyncio.StreamWriter] = []

    async def serve(self, handler: Handler) -> int:
        """The port at which that answers."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._handling.add(task)
            await handler(reader, writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def say(self, port: int, text: bytes) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._callers.append(writer)
        writer.write(text)
        return reader, writer

    async def close(self) -> None:
        for writer in self._callers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._handling)
        for server in self._servers:
            server.close()


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers()
    yield servers
    await servers.close()


async def repeats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with all that it was told, once nothing more is told."""
    writer.write(b"told: " + await reader.read())
    writer.close()


async def test_a_tunnel_carries_both_ways_and_ends_as_its_ends_do(servers: Servers) -> None:
    there = await servers.serve(repeats)
    reader, writer = await servers.say(
        await servers.serve(proxy), b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % there
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"told: hello"


async def test_a_plain_request_reaches_its_server_as_one_of_its_own(servers: Servers) -> None:
    there = await servers.serve(repeats)
    reader, writer = await servers.say(
        await servers.serve(proxy),
        b"POST http://127.0.0.1:%d/a/b?c=d HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n"
        b"Proxy-Authorization: Basic eA==\r\nContent-Length: 2\r\n\r\nhi" % there,
    )
    writer.write_eof()
    told = b"POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    assert await reader.read() == b"told: " + told


@pytest.mark.parametrize(
    "said",
    [
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n",
        b"GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT a:b HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"x" * (1 << 17),
    ],
)
async def test_what_cannot_be_reached_or_read_is_a_502(servers: Servers, said: bytes) -> None:
    reader, _ = await servers.say(await servers.serve(proxy), said)
    assert (await reader.readline()) == b"HTTP/1.1 502 Bad Gateway\r\n"


async def test_a_proxy_of_this_machine_is_asked_with_its_password(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = await servers.serve(repeats)
    monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{above}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ours = await servers.serve(proxy)
    reader, writer = await servers.say(ours, b"CONNECT far:443 HTTP/1.1\r\nHost: far\r\n\r\n")
    writer.write_eof()
    field = b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n"
    assert await reader.read() == (
        b"told: CONNECT far:443 HTTP/1.1\r\n" + field + b"Host: far\r\n\r\n"
    )
    direct = await servers.serve(repeats)
    reader, writer = await servers.say(ours, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % direct)
    assert (await reader.readline()).endswith(b"200 Connection established\r\n")


async def test_a_port_is_reached_where_somebody_listens(servers: Servers) -> None:
    there = await servers.serve(repeats)
    reader, writer = await servers.say(
        await servers.serve(to_port(there, ("127.0.0.9", "127.0.0.1"))), b"a"
    )
    writer.write_eof()
    assert await reader.read() == b"told: a"
    reader, _ = await servers.say(await servers.serve(to_port(1)), b"")
    assert await reader.read() == b""
