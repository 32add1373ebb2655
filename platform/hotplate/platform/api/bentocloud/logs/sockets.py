"""WebSockets as the client speaks them: JSON of a type, a message and a payload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from hotplate.platform.errors import PlatformError

HEARTBEAT_S = 20.0
"""A client that does not answer a ping within half of this has gone."""
MESSAGE_BYTES = 64 << 10
"""The largest that is taken; the client's have a few hundred."""
PARTING_S = 5.0
"""How long the client has to close."""


async def opened(request: web.Request) -> web.WebSocketResponse:
    """The WebSocket of a request, which pings the client and takes small messages only."""
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MESSAGE_BYTES)
    await socket.prepare(request)
    return socket


async def answered(
    request: web.Request, payload: Callable[[], Awaitable[Any]]
) -> web.WebSocketResponse:
    """One message, with what `payload` gives or why it cannot; the client closes then."""
    socket = await opened(request)
    try:
        await socket.send_json(message("success", payload=await payload()))
    except PlatformError as error:
        await socket.send_json(message("error", str(error)))
    await parted(socket)
    return socket


def message(kind: str, text: str = "", payload: Any = None) -> dict[str, Any]:
    """A message as the client expects it: `type`, `message`, `payload`."""
    return {"type": kind, "message": text, "payload": payload}


async def parted(socket: web.WebSocketResponse) -> None:
    """Let the client close, as it does when it has read all; close if it does not."""
    try:
        async with asyncio.timeout(PARTING_S):
            while (await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
                pass
    except TimeoutError:
        await socket.close()
