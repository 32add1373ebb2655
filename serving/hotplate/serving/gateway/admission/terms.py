"""The result of admission: a response of the gateway's own, or terms of a request."""

from __future__ import annotations

from typing import NamedTuple

from hotplate.serving.gateway.http1.request_head import Memo
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.protocol.routes import Route


class Local(NamedTuple):
    """The gateway itself responds with this JSON."""

    body: bytes
    status: int = 200
    lines: bytes = b""
    """Additional header lines."""


class Terms:
    """The terms on which a request may wait for a replica."""

    __slots__ = ("hold_s", "needs_slot", "organization", "prefix", "priority", "timeout_s")

    def __init__(
        self,
        needs_slot: bool,
        hold_s: float,
        timeout_s: float,
        *,
        prefix: bytes = b"",
        organization: str = "",
        priority: int = USUAL_PRIORITY,
    ) -> None:
        self.needs_slot = needs_slot
        self.hold_s = hold_s
        """How long it may wait for a replica to be ready."""
        self.timeout_s = timeout_s
        """How long it may take until its response begins, from when a replica is ready."""
        self.prefix = prefix
        """A prefix of the request's target."""
        self.organization = organization
        self.priority = priority


class Admitted(Memo):
    """The terms on which a head was admitted to a route, for the next request with the same."""

    __slots__ = ("ready", "route", "terms")

    def __init__(self, route: Route, terms: Terms, *, ready: bool) -> None:
        self.route = route
        self.terms = terms
        self.ready = ready
        """Whether a replica was ready, on which the terms depend."""
