"""Whether a request has a token of ours: `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac

from aiohttp import web


def bears(request: web.Request, *tokens: str) -> bool:
    """Whether it has one of them; an empty one is nobody's. How long it takes tells nothing."""
    given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    matches = [hmac.compare_digest(given, f"Bearer {token}".encode()) for token in tokens if token]
    return any(matches)
