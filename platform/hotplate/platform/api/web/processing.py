"""Answers that take longer than a client waits for one: it hears meanwhile that they are made."""

from __future__ import annotations

from aiohttp import HttpVersion11, web

from hotplate.platform.api.web.passing_on import PASSED_BY

BETWEEN = ("Via", "Forwarded", "X-Forwarded-For", PASSED_BY)
"""Headers of a proxy, which may take the first word for the answer, or keep it to itself."""


def say_processing(request: web.Request) -> bool:
    """Sends `102 Processing` (RFC 2518, section 10.1), with which a client's time limit begins
    anew; whether it could: HTTP/1.0 knows no such word, and proxies are not trusted with it."""
    if request.version < HttpVersion11 or any(name in request.headers for name in BETWEEN):
        return False
    if request.transport is None or request.transport.is_closing():
        return False
    request.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")
    return True
