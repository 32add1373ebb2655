"""Connections to where a replica listens: `host:port`, or `unix:` and a socket's path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hotplate.machine.address import Address
from hotplate.machine.unix_address import short_path, unix_path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(make: Callable[[], asyncio.Protocol], address: str) -> None:
    """Connects the protocol that `make` makes. Raises OSError."""
    loop = asyncio.get_running_loop()
    path = unix_path(address)
    if path is None:
        await loop.create_connection(make, *Address.parse(address))
        return
    with short_path(path) as name:
        await loop.create_unix_connection(make, name)


async def open_streams(address: str) -> Streams:
    """Raises OSError."""
    path = unix_path(address)
    if path is None:
        return await asyncio.open_connection(*Address.parse(address))
    with short_path(path) as name:
        return await asyncio.open_unix_connection(name)
