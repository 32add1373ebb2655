"""Writes to one reader of a stream what is new, for as long as it may see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from hotplate.platform.api.hotplate.streaming.hub import news
from hotplate.platform.errors import PlatformError
from hotplate.platform.live.cursor import Cursor

COMMENT_S = 15.0
"""How often something is written, whatever happens: so that both sides notice a dead connection."""
PAUSE_S = 0.25
"""Who was told something hears of the next thing so long after that at the soonest: what many
topics say within that time costs as much as one."""
TOGETHER_CHARS = 1 << 14
"""What is written at once, or somewhat more."""
CHECK_S = 4.0
"""How often it is looked whether a reader may still see what it sees."""


class Reader:
    def __init__(self, response: web.StreamResponse, cursor: Cursor, wake: asyncio.Event) -> None:
        """`wake` is set when the cursor may have something new."""
        self._response = response
        self._cursor = cursor
        self._wake = wake
        self._told_at = 0.0
        """Of the loop's clock."""

    async def tell(
        self, refusal: Callable[[], Awaitable[PlatformError | None]], closing: Callable[[], bool]
    ) -> None:
        """Until there is a `refusal`, of which the reader is told, or all is `closing`. Raises
        ConnectionError when the reader has left."""
        now = asyncio.get_running_loop().time
        comment_at, check_at = now() + COMMENT_S, now() + CHECK_S
        while not closing():
            self._wake.clear()
            if await self._write_news(check_at):
                await news(self._wake, max(0.0, min(comment_at, check_at) - now()))
                await asyncio.sleep(max(0.0, self._told_at + PAUSE_S - now()))
            if now() >= comment_at:
                await self._response.write(b": \n\n")
                comment_at = now() + COMMENT_S
            if now() >= check_at:
                if (refused := await refusal()) is not None:
                    await self._write_end(refused)
                    return
                check_at = now() + CHECK_S

    async def _write_news(self, until: float) -> bool:
        """All that there is, at most until that moment of the loop's clock; whether it is all.

        While the reader takes nothing, this waits, and what is new meanwhile is joined.
        """
        now = asyncio.get_running_loop().time
        texts: list[str] = []
        for event in self._cursor.next():
            texts.append(event.text())
            if sum(map(len, texts)) >= TOGETHER_CHARS:
                await self._write(texts)
                if now() >= until:
                    return False
        if texts:
            await self._write(texts)
        return True

    async def _write(self, texts: list[str]) -> None:
        """These at once; none is left."""
        self._told_at = asyncio.get_running_loop().time()
        text = "".join(texts)
        texts.clear()
        await self._response.write(text.encode(errors="replace"))

    async def _write_end(self, refused: PlatformError) -> None:
        data = json.dumps({"code": refused.code, "message": str(refused)})
        await self._response.write(f"event: end\ndata: {data}\n\n".encode())
