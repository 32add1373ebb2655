"""A caller's connection to the API: quiet about bytes that are no request, and never held for ever.

aiohttp waits without end for a caller that does not read its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from hotplate.machine.access.quiet_connection import QuietConnection, why_malformed
from hotplate.platform.api.web import http_errors


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds on connections. A request's head has aiohttp's: 8190 bytes a line, 128 lines."""

    connections: int = 4096
    """Open at once; one more is answered 503 and closed."""
    idle_s: float = 30.0
    """A connection is closed after this without a whole head: between requests and within one."""
    stall_s: float = 30.0
    """A caller that takes no byte of its answer for this long is cut off."""
    linger_s: float = 2.0
    """How long what follows a malformed request, or the rest of a refused body, is thrown away:
    closing on unread bytes would take the answer away again."""


class ApiConnection(QuietConnection):
    """One connection, as `web.Server` makes them."""

    __slots__ = ("_gone", "_limits", "_refused", "_watch")

    def __init__(self, server: web.Server, limits: ConnectionLimits) -> None:
        # A body in gzip is not undone: a thousand times its size would go to the disk.
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_s,
            lingering_time=limits.linger_s,
            auto_decompress=False,
        )
        self._limits = limits
        self._refused = False
        """Bytes came that are no request: nothing after them can be read."""
        self._gone = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None

    def malformed(self, exc: BaseException) -> web.Response:
        """What is answered to bytes that are no request: nothing after them can be read."""
        self._refused = True
        return malformed(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """As it was, and lingers after a refusal; in our words what no middleware has seen."""
        if isinstance(resp, web.HTTPException):
            resp = http_errors.plain_response(request.path, resp)
        done = await super().finish_response(request, resp, start_time)
        if self._refused:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger_s):
                    await self._gone.wait()
        return done

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._gone.set()
        self._forget_watch()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_from(self._unsent_bytes())

    def resume_writing(self) -> None:
        self._forget_watch()
        super().resume_writing()

    # Inside

    def _watch_from(self, unsent_bytes: int) -> None:
        self._watch = self._loop.call_later(self._limits.stall_s, self._look, unsent_bytes)

    def _look(self, before_bytes: int) -> None:
        unsent_bytes = self._unsent_bytes()
        if unsent_bytes < before_bytes:
            self._watch_from(unsent_bytes)
        elif self.transport is not None:
            self.transport.abort()

    def _unsent_bytes(self) -> int:
        transport = self.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def _forget_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def malformed(exc: BaseException | None) -> web.Response:
    """What is answered to bytes that cannot be read as HTTP/1.1."""
    if isinstance(exc, LineTooLong):
        return http_errors.response(431, "head_too_large", why_malformed(exc))
    return http_errors.response(400, "bad_request", why_malformed(exc))
