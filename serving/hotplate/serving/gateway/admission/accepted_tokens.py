"""The tokens that protected deployments take, by organization, as the last table had them.

They stand in a table once and not in each route, so that one that is revoked is a small change.
What has expired is refused here, whether or not a control plane runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hotplate.serving.gateway.protocol.routes import AcceptedToken

USE_S: Final = 30.0
"""How often it is said of a token that it was used."""


class AcceptedTokens:
    """Those of one gateway."""

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, list[AcceptedToken]]] = {}
        """By organization and digest; one that is good for some deployments is there for each."""
        self._used: set[str] = set()
        self._said_at: dict[str, float] = {}

    def install(self, tokens: Mapping[str, Sequence[AcceptedToken]]) -> None:
        """Replaces all of them."""
        self._tokens = {}
        for organization, accepted in tokens.items():
            by_digest = self._tokens.setdefault(organization, {})
            for token in accepted:
                by_digest.setdefault(token.digest, []).append(token)
        known = {digest for accepted in self._tokens.values() for digest in accepted}
        self._said_at = {d: at for d, at in self._said_at.items() if d in known}

    def admits(self, organization: str, deployment: str, digest: str, wall: float) -> bool:
        """Whether a token with this digest is good for a deployment at `wall` (Unix seconds).

        How long it takes says nothing of a token: a guess does not choose its digest.
        """
        found = self._tokens.get(organization, {}).get(digest, ())
        if not any(_is_good(token, deployment, wall) for token in found):
            return False
        if wall - self._said_at.get(digest, -USE_S) >= USE_S:
            self._said_at[digest] = wall
            self._used.add(digest)
        return True

    def take_used(self) -> tuple[str, ...]:
        """The digests of those that were used and of which that was not said lately."""
        used, self._used = tuple(sorted(self._used)), set()
        return used


def _is_good(token: AcceptedToken, deployment: str, wall: float) -> bool:
    if token.deployment and token.deployment != deployment:
        return False
    return token.expires_at is None or token.expires_at > wall
