"""Connections to where a replica listens: `host:port`, or `unix:` and a socket's path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hotplate.machine.unix_address import short_path, unix_path
from hotplate.serving.gateway.replicas.probe import Streams


async def connect(make: Callable[[], asyncio.Protocol], address: str) -> None:
    """Connects a protocol of the caller's. Raises OSError."""
    loop = asyncio.get_running_loop()
    path = unix_path(address)
    if path is None:
        await loop.create_connection(make, *_host_and_port(address))
        return
    with short_path(path) as name:
        await loop.create_unix_connection(make, name)


async def open_streams(address: str) -> Streams:
    """Raises OSError."""
    path = unix_path(address)
    if path is None:
        return await asyncio.open_connection(*_host_and_port(address))
    with short_path(path) as name:
        return await asyncio.open_unix_connection(name)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
