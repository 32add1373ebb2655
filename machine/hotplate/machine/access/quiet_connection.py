"""A connection of an aiohttp server that is quiet about bytes that are no request.

aiohttp logs a traceback for each of them and for each caller that leaves, and answers with what its
parser says. It has limits of its own: 8190 bytes a line of a request's head, 128 lines.
"""

from __future__ import annotations

from logging import Logger
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

CALLERS_FAULT = (ConnectionError, HttpProcessingError, web.RequestPayloadError)
"""What a caller can bring about by what it sends, or by leaving."""

TOO_LONG = "the request's target or one of its headers is too long; send less"


class QuietConnection(web.RequestHandler):
    """Answers what cannot be read as HTTP with a sentence, and logs bugs of ours only."""

    __slots__ = ()

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        """`settings` are `web.RequestHandler`'s; there is no access log."""
        # None is its documented way to have none, and not in its types.
        super().__init__(manager, **settings, access_log=cast(Logger, None))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to a handler's bug."""
        if isinstance(exc, ConnectionError):
            raise exc
        if not isinstance(exc, CALLERS_FAULT):
            return super().handle_error(request, status, exc, message)
        response = self.malformed(exc)
        response.force_close()
        return response

    def malformed(self, exc: BaseException) -> web.Response:
        """What is answered to bytes that cannot be read as HTTP/1.1; 400 and the reason."""
        error = {"code": "bad_request", "message": why_malformed(exc)}
        return web.json_response({"error": error}, status=400)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs what is a bug of ours."""
        if not isinstance(kw.get("exc_info"), CALLERS_FAULT):
            super().log_exception(*args, **kw)


def why_malformed(exc: BaseException | None) -> str:
    """Why bytes are no request, in one sentence that repeats nothing of a line too long."""
    if isinstance(exc, LineTooLong):
        return TOO_LONG
    reason = (getattr(exc, "message", "") or str(exc)).partition("\n")[0].rstrip(": .")
    return f"this is not a request in HTTP/1.1: {reason}"
