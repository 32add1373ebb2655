"""Whether a request has a token of ours: `Authorization: Bearer TOKEN`. How long it takes to find
that out says nothing of the token."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from aiohttp import web


def has_token(request: web.Request, *tokens: str) -> bool:
    """Whether it has one of them; an empty one is nobody's."""
    given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    matches = [hmac.compare_digest(given, f"Bearer {token}".encode()) for token in tokens if token]
    return any(matches)


@dataclass(frozen=True)
class TokenCheck:
    """Who may call a server of the platform's own: whoever has the cluster's token."""

    token: str = field(repr=False)
    """Empty: everybody may."""

    def admits(self, request: web.Request) -> bool:
        """Whether the request is to be answered."""
        return not self.token or has_token(request, self.token)
