"""Carries TCP connections into a replica's network and out of it; runs in the replica
(Python >= 3.9).

Out of it go the ports of this machine's loopback that are asked for, one to one, and whatever comes
by an HTTP proxy (RFC 9110, 9.3.6 and 7.1), of which most programs take the address from their
environment.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Callable
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "::1")
_PIECE_BYTES = 1 << 16


def to_port(port: int, hosts: Sequence[str] = LOOPBACK) -> Handler:
    """Takes each connection on to that port, at the first host that listens on it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for host in hosts:
            try:
                there = await asyncio.open_connection(host, port)
            except OSError:
                continue
            await carry((reader, writer), there)
            return
        await _end(writer)

    return handle


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request of a program to the HTTP proxy; a tunnel for `CONNECT`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ")
        tunnel = method == "CONNECT"
        url = urlsplit(f"//{target}" if tunnel else target)
        host, port = url.hostname or "", url.port or 80
        upstream = _upstream(host, port, tunnel)
        there = await asyncio.open_connection(*(upstream[0] if upstream else (host, port)))
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        why = str(error).encode(errors="replace").replace(b"\r", b"").replace(b"\n", b" ")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n" + why)
        await _end(writer)
        return
    if upstream:
        there[1].write(line + b"\r\n" + upstream[1] + fields)
    elif tunnel:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        path = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
        there[1].write(f"{method} {path} {version}\r\n".encode("latin-1") + _once(fields))
    await carry((reader, writer), there)


async def carry(one: Streams, other: Streams) -> None:
    """Copies bytes both ways, until each side has ended or one has broken off."""
    try:
        await asyncio.gather(_copy_stream(one[0], other[1]), _copy_stream(other[0], one[1]))
    except OSError:
        pass
    finally:
        await asyncio.gather(_end(one[1]), _end(other[1]))


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _copy_stream(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIECE_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof() and not sink.is_closing():
        sink.write_eof()


def _once(fields: bytes) -> bytes:
    """A request's fields for its server: the connection is for this request only, because the next
    one may be for another server."""
    lines = fields[:-4].split(b"\r\n")
    ours = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")
    kept = [line for line in lines if line and not line.lower().startswith(ours)]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


def _upstream(host: str, port: int, tunnel: bool) -> tuple[tuple[str, int], bytes] | None:
    """The address of this machine's own proxy for the URL, and our credentials there."""
    proxies = getproxies_environment()
    proxy_url = proxies.get("https" if tunnel else "http") or proxies.get("all") or ""
    url = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    if not url.hostname or url.scheme != "http" or proxy_bypass(f"{host}:{port}"):
        return None
    field = b""
    if url.username:
        user = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        field = b"Proxy-Authorization: Basic " + base64.b64encode(user) + b"\r\n"
    return (url.hostname, url.port or 80), field
