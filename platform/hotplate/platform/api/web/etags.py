"""Changes of only what their maker has read: `ETag` and `If-Match` (RFC 9110, 13.1.1).

A tag stands for what may be changed of a thing. What only happens to it, such as what it uses now,
is not in it, else nearly every change would come too late.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from hotplate.platform.errors import ChangedMeanwhile


def etag_of(state: Any) -> str:
    """The tag of what may be changed, of which it is a digest."""
    content = json.dumps(state, sort_keys=True, default=str).encode()
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def tagged(answer: Any, state: Any) -> web.Response:
    """JSON with the tag of what may be changed of it."""
    return web.json_response(answer, headers={"ETag": etag_of(state)})


class ConditionalChanges:
    """Those of one kind of thing, one after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def one(
        self, request: web.Request, state: Callable[[], Awaitable[Any]]
    ) -> AsyncIterator[None]:
        """Room for one; `state` is what may be changed, as it is now, or None where there is
        nothing yet. Raises ChangedMeanwhile where the request is about another state."""
        async with self._turn:
            wanted = request.headers.get("If-Match", "").strip()
            if wanted:
                found = await state()
                now = "nothing" if found is None else etag_of(found)
                of_any = wanted == "*" and found is not None
                if not of_any and now not in (tag.strip() for tag in wanted.split(",")):
                    raise ChangedMeanwhile(
                        f"{request.path} is no longer what If-Match names ({wanted:.80}), but "
                        f"{now}; nothing was changed: read it again, and decide again"
                    )
            yield
