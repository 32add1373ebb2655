"""Who may read which lines of `/metrics`: the same for control plane, gateway and agent.

An organization's token of the scope `metrics` shows the organization's lines, an operator's and the
cluster's all. The control plane knows tokens itself; gateways and agents are told their digests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from aiohttp import web

from hotplate.machine.access.bearer import has_token
from hotplate.machine.access.metrics_reader import ALL, MetricsReader

PATH = "/metrics"
TOKEN_HEADER = "X-YATAI-API-TOKEN"
ACTS_FOR = "X-Hotplate-Organization"
"""With it, an operator reads that organization's lines only."""
REFUSAL = (
    "/metrics needs a token of the scope 'metrics' that is good: "
    "'Authorization: Bearer TOKEN' ('hotplate token create NAME --scope metrics')"
)


class MetricsReaders:
    """Those whom one server knows, as it was told last."""

    def __init__(self) -> None:
        self._readers: dict[str, MetricsReader] = {}
        """By digest."""

    def install(self, readers: Iterable[MetricsReader]) -> None:
        """Replaces all of them."""
        self._readers = {reader.digest: reader for reader in readers}

    def find(self, secret: str, wall: float) -> MetricsReader | None:
        """Whose token this is, unless it has expired at `wall` (Unix seconds).

        How long it takes says nothing of a token: a guess does not choose its digest.
        """
        digest = sha256(secret.encode(errors="surrogateescape")).hexdigest()
        reader = self._readers.get(digest)
        if reader is None or (reader.expires_at is not None and reader.expires_at <= wall):
            return None
        return reader


@dataclass(frozen=True)
class MetricsCheck:
    """Who reads the metrics of a server that does not make tokens."""

    token: str = field(repr=False)
    """The cluster's, which shows all; empty: so does whoever reaches the server."""
    metrics_token: str | None = field(repr=False)
    """Another one that shows all; empty = there is none, None = none is needed."""
    readers: MetricsReaders

    def lines_for(self, request: web.Request) -> str | None:
        """The organization whose lines the request's token shows, or `ALL`; None = it has none that
        shows any."""
        if not self.token or self.metrics_token is None:
            return ALL
        if has_token(request, self.token, self.metrics_token):
            return ALL
        reader = self.readers.find(given_token(request), datetime.now(UTC).timestamp())
        return None if reader is None else reader.organization


def given_token(request: web.Request) -> str:
    """What the request has as its token; empty = none."""
    if secret := request.headers.get(TOKEN_HEADER, ""):
        return secret
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
