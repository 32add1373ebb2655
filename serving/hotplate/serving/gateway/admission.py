"""Whether a request is let in, and on what terms, before it sees the queue. Pure.

Only calls of a service's API take a slot. These are read from a replica past its queue, with GET
or HEAD, because they must be answered while every slot is busy:

    /readyz                     wakes a sleeping route; held until a replica is ready, 25 s at most
    /metrics                    never wakes: a scraper would keep its deployment awake
    /schema.json                answered from the manifest when no replica is ready, without waking
    / /docs.json /static_content/*   the service's own page, wakes

`/livez` and `/healthz` say that the gateway is there: it answers them itself, to anybody.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

from hotplate.serving.gateway.errors import (
    BodyTooLarge,
    GatewayError,
    NotReady,
    PickleRefused,
    RouteRefused,
    Unauthorized,
)
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.request_head import RequestHead
from hotplate.serving.gateway.routes import Route

ALIVE_PATHS = frozenset({b"/livez", b"/healthz"})
SLOTLESS_PATHS = frozenset({b"/readyz", b"/metrics", b"/schema.json", b"/docs.json", b"/"})
STATIC_PREFIX = b"/static_content/"


class Local(NamedTuple):
    """The gateway answers 200 with this JSON itself."""

    body: bytes


class Terms(NamedTuple):
    """The request may wait for a replica."""

    needs_slot: bool
    hold_s: float
    """How long it may wait for a replica to be ready."""


def admit(route: Route, request: RequestHead, *, ready: bool, limits: Limits) -> Local | Terms:
    """The terms for one request on `route`; `ready` says whether a replica takes requests.

    Raises Unauthorized, RouteRefused, PickleRefused, BodyTooLarge or NotReady.
    """
    reads = request.method in (b"GET", b"HEAD")
    if reads and request.path in ALIVE_PATHS:
        return Local(b'{"status": "ok"}')
    if route.token_digests is not None:
        _authorize(request.authorization, route.token_digests)
    if route.refuse:
        raise RouteRefused(route.refuse)
    if b"pickle" in request.content_type and not route.internal:
        raise PickleRefused(
            "Pickle bodies are refused from outside; send application/json or multipart/form-data."
        )
    if request.content_length > route.body_limit_bytes:
        raise body_too_large(request.content_length, route)
    if not reads or not _slotless(request.path):
        return Terms(needs_slot=True, hold_s=route.hold_limit_s)
    return _read_terms(route, request.path, ready=ready, limits=limits)


def body_too_large(size_bytes: int, route: Route) -> GatewayError:
    return BodyTooLarge(
        f"{route.name}: the body has {size_bytes} bytes or more, "
        f"{route.body_limit_bytes} are accepted (body_limit_bytes); send less at once."
    )


def _read_terms(route: Route, path: bytes, *, ready: bool, limits: Limits) -> Local | Terms:
    if path == b"/readyz":
        return Terms(False, min(limits.ready_hold_s, route.hold_limit_s))
    if not ready and path == b"/schema.json" and route.schema:
        return Local(route.schema.encode())
    if not ready and path == b"/metrics":
        raise NotReady(f"{route.name}: no replica is ready and reading metrics wakes none.")
    return Terms(False, route.hold_limit_s)


def _slotless(path: bytes) -> bool:
    return path in SLOTLESS_PATHS or path.startswith(STATIC_PREFIX)


def _authorize(authorization: bytes, digests: Sequence[str]) -> None:
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Unauthorized("This endpoint needs a token: send 'Authorization: Bearer <token>'.")
    digest = hashlib.sha256(token.strip()).hexdigest()
    # Every digest is compared, so that the time says nothing of which one, or how far, it matched.
    matches = [hmac.compare_digest(digest, known) for known in digests]
    if not any(matches):
        raise Unauthorized("The bearer token is not one of this endpoint's tokens.")
