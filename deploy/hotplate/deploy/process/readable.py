"""Descriptors that will have something to read."""

from __future__ import annotations

import asyncio


async def until_readable(descriptor: int) -> None:
    """Returns when there is something to read, or nothing ever again."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, on_readable)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
