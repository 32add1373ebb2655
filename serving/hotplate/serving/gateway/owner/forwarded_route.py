"""A route as the gateways serve it that do not own its deployment: all of it goes to the owner."""

from __future__ import annotations

from dataclasses import replace

from hotplate.serving.gateway.protocol.routes import ReplicaRoute, Route

FOREVER_S = 366 * 86400.0
"""The owner counts the time; none is counted here."""


def forwarded_route(route: Route, address: str) -> Route:
    """The route for a gateway that does not own it; `address` is the owner's. Empty: no gateway
    owns it at this moment, so requests wait until one does."""
    owner = (ReplicaRoute(address, address),) if address else ()
    return replace(
        route,
        replicas=owner,
        beyond=route.replicas,
        timeout_s=FOREVER_S,
        hold_limit_s=FOREVER_S,
        token_digests=None,
        tokens_of="",
        refuse="",
        versions=(),
        version="" if route.versions else route.version,
        relayed=True,
    )
