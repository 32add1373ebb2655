"""Whether an ejected replica takes requests again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hotplate.serving.gateway.replicas.fence import ANOTHER, FenceLines
from hotplate.serving.gateway.sockets.dialing import Streams

PROBE_S = 2.0
"""Time for one probe."""
ITSELF = "?of=itself"
"""Our worker answers for itself, and asks none of the services that it calls."""
STATUS_BYTES = 12
"""`HTTP/1.1 200`"""


async def probe(dial: Callable[[], Awaitable[Streams]], ready_path: str, fence: FenceLines) -> str:
    """Why the replica takes no requests; empty = it does. Without `ready_path` a connection is
    enough; `fence` is what our worker is told."""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await dial()
            try:
                if ready_path:
                    return await _unready(reader, writer, ready_path, fence)
            finally:
                writer.close()
    except asyncio.IncompleteReadError:
        return "it takes connections and does not answer"
    except OSError as error:  # a timeout is one of them
        return f"it takes no connection: {error}" if str(error) else "it does not answer in time"
    return ""


async def _unready(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ready_path: str, fence: FenceLines
) -> str:
    head = f"GET {ready_path}{ITSELF} HTTP/1.1\r\nHost: replica\r\nConnection: close".encode()
    writer.write(b"%b%b\r\n\r\n" % (head, fence.line(needs_slot=False, may_return=True)))
    status = (await reader.readexactly(STATUS_BYTES))[-3:]
    if status == b"100":
        return ANOTHER
    return "" if status == b"200" else f"it is not ready ({status.decode('latin-1')})"
