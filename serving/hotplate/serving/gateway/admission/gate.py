"""Whether a request is admitted, and on what terms, before it enters the queue. Pure.

Every request takes a slot, except those that BentoML itself answers, whatever the author mounts.
They bypass the queue, because they must be answered while every slot is busy:

    GET /readyz             wakes a sleeping route; held until a replica is ready, 25 s at most
    GET /metrics            never wakes: a scraper would keep its deployment awake
    GET /schema.json        answered from the manifest when no replica is ready, without waking
    GET /docs.json          from the bento's files, by the control plane, when no replica is ready;
                            if that cannot answer it, it is a call like any other, and wakes
    GET <task>/status /get  and PUT <task>/cancel, of a service that others of its bento call: the
                            task itself may have the only slot. A public one's routes are answered
                            by the control plane, which keeps its tasks (`task_routes.py`)

A service with a path prefix has them below it; `/readyz` and `/metrics` are found without it too,
because BentoML's clients know no prefix. `GET /livez` and `/healthz` say that the gateway is alive:
it answers them itself, to any caller. It also answers CORS preflights by the service's rules,
because they carry no token and must not wait for a replica. A request that a browser sends for a
page of another origin is refused unless those rules allow it. Below `/hotplate/` replicas answer
gateways only.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from hotplate.machine.access.cross_site import REFUSED, RequestContext, is_foreign, nobody
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.serving.gateway.admission.accepted_tokens import AcceptedTokens
from hotplate.serving.gateway.admission.cors import is_preflight, preflight
from hotplate.serving.gateway.admission.internal_callers import is_the_secret, refuse_strangers
from hotplate.serving.gateway.admission.task_routes import TaskCall
from hotplate.serving.gateway.admission.terms import Admitted, Local, Terms
from hotplate.serving.gateway.admission.version_choice import refuse_unknown_version
from hotplate.serving.gateway.errors import (
    BadTimeout,
    BodyTooLarge,
    CrossSite,
    GatewayError,
    Misdirected,
    NotReady,
    PathReserved,
    PickleRefused,
    RouteRefused,
    Unauthorized,
)
from hotplate.serving.gateway.http1.request_head import RequestHead
from hotplate.serving.gateway.limits import Limits
from hotplate.serving.gateway.protocol.headers import REPLICA_KEY
from hotplate.serving.gateway.protocol.priority import USUAL_PRIORITY
from hotplate.serving.gateway.protocol.routes import Route

RESERVED_PREFIX = b"/hotplate/"
ALIVE_PATHS = frozenset({b"/livez", b"/healthz"})
PREFIXED_PATHS = frozenset({b"/readyz", b"/metrics"})
SCHEMA_PATH = b"/schema.json"
URGENCIES = frozenset(b"%d" % level for level in range(8))
ORGANIZATION_BYTES = 200
"""Limit of an organization's name; the rest is cut off."""
TOKEN_SENT = (
    "'Authorization: Bearer <token>' with one of the scope 'endpoint', which "
    "'bentoml api-token create NAME --scope endpoint' makes"
)
_REPLICA_KEY = REPLICA_KEY.encode()
TASK_READS = frozenset({(b"GET", b"status"), (b"GET", b"get"), (b"PUT", b"cancel")})


def admit(
    route: Route,
    request: RequestHead,
    *,
    ready: bool,
    limits: Limits,
    task: TaskCall | None = None,
    tokens: AcceptedTokens | None = None,
) -> Local | Terms:
    """The terms for one request on `route`. `ready` says whether a replica takes requests; `task`
    is set for a call of a kept task, whose state is reported in any case. `tokens` are those of a
    route with `tokens_of`; None = it has none.

    Raises Misdirected, CrossSite, Unauthorized, PageRefused, UnknownVersion, RouteRefused,
    PathReserved, PickleRefused, BodyTooLarge, NotReady or BadTimeout.
    """
    reads = request.method in (b"GET", b"HEAD")
    if reads and request.path in ALIVE_PATHS:
        return Local(b'{"status": "ok"}')
    if route.relayed:
        return Terms(False, route.hold_limit_s, route.timeout_s)
    if route.internal:
        refuse_strangers(route, request)
    if route.cors is not None and is_preflight(request):
        status, lines, body = preflight(route.cors, request)
        return Local(body, status, lines)
    if (request.origin or request.site) and not route.internal:
        _check_page(route, request, limits.hosts)
    if route.protected:
        _authorize(request.authorization, route, tokens)
    if route.versions:
        refuse_unknown_version(route, request)
    if route.refuse and not (task is not None and task.outlasts):
        raise RouteRefused(route.refuse)
    if request.path.startswith(RESERVED_PREFIX):
        raise PathReserved("Paths below /hotplate/ are the platform's own.")
    if b"pickle" in request.content_type and not route.internal:
        raise pickle_refused()
    if request.content_length > route.body_limit_bytes:
        raise body_too_large(request.content_length, route)
    if reads and (terms := _read_terms(route, request.path, ready=ready, limits=limits)):
        return terms
    return Terms(
        not _is_task_read(route, request),
        route.hold_limit_s,
        _timeout_s(route, request.timeout) if request.timeout else route.timeout_s,
        organization=_organization(route, request) if route.organization_header else "",
        priority=urgency(request.priority) if route.priority_header else USUAL_PRIORITY,
    )


def admit_again(
    route: Route,
    request: RequestHead,
    *,
    ready: bool,
    limits: Limits,
    task: TaskCall | None,
    tokens: AcceptedTokens | None = None,
) -> Local | Terms:
    """The same as `admit`, with its result kept at the head if that comes again
    (`head_cache.py`). A token may have been revoked or have expired since, though."""
    if route.tokens_of:
        return admit(route, request, ready=ready, limits=limits, task=task, tokens=tokens)
    memo = request.memo
    if isinstance(memo, Admitted) and memo.route is route and memo.ready == ready and task is None:
        return memo.terms
    terms = admit(route, request, ready=ready, limits=limits, task=task)
    if isinstance(terms, Terms) and task is None:
        request.memo = Admitted(route, terms, ready=ready)
    return terms


def takes_authorization(route: Route, request: RequestHead) -> bool:
    """Whether a replica gets the request's `Authorization`, which otherwise is for the gateway
    only."""
    return route.relayed or not is_for_gateways(route, request)


def is_for_gateways(route: Route, request: RequestHead) -> bool:
    """Whether the request's `Authorization` is for gateways alone: what opens a protected route, a
    revision's secret, or the key of a replica, which may call more than this deployment."""
    if route.protected or not request.authorization:
        return route.protected
    return _is_replicas(request.authorization) or is_the_secret(route, request.authorization)


def _is_replicas(authorization: bytes) -> bool:
    scheme, _, token = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and token.lstrip().startswith(_REPLICA_KEY)


def pickle_refused() -> PickleRefused:
    return PickleRefused(
        "Pickles are refused from outside; send JSON, or files of another type as form data."
    )


def body_too_large(size_bytes: int, route: Route) -> GatewayError:
    return BodyTooLarge(
        f"{route.name}: the body has {size_bytes} bytes or more, "
        f"{route.body_limit_bytes} are accepted (body_limit_bytes); send less at once."
    )


def _read_terms(route: Route, path: bytes, *, ready: bool, limits: Limits) -> Local | Terms | None:
    """The terms of a request about the replica itself; None for all others."""
    if path == SCHEMA_PATH:
        if not ready and route.schema:
            return Local(route.schema.encode())
        return Terms(False, route.hold_limit_s, route.timeout_s)
    above = route.ready_path[: -len("/readyz")].encode()
    inner = path.removeprefix(above)
    if inner not in PREFIXED_PATHS:
        return None
    if inner == b"/metrics" and not ready:
        raise NotReady(f"{route.name}: no replica is ready and reading metrics wakes none.")
    hold_s = limits.ready_hold_s if inner == b"/readyz" else route.hold_limit_s
    prefix = above if inner == path else b""
    return Terms(False, min(hold_s, route.hold_limit_s), route.timeout_s, prefix=prefix)


@lru_cache(maxsize=64)
def urgency(field: bytes) -> int:
    """The urgency in RFC 9218's `Priority` field, 0..7; an invalid one counts as none."""
    urgency = USUAL_PRIORITY
    for member in field.split(b","):
        key, _, value = member.partition(b";")[0].strip().partition(b"=")
        if key == b"u":
            urgency = int(value) if value in URGENCIES else USUAL_PRIORITY
    return urgency


def _timeout_s(route: Route, field: bytes) -> float:
    """The caller's own time limit, where it is shorter than the route's."""
    try:
        asked_s = float(field) if b"_" not in field else math.nan
    except ValueError:
        asked_s = math.nan
    if not 0.0 < asked_s < math.inf:
        raise BadTimeout(
            f"X-Request-Timeout-Seconds is {field.decode('latin-1')!r}; "
            "send a positive number of seconds, such as 2.5, or leave it out."
        )
    return min(asked_s, route.timeout_s)


def _check_page(route: Route, request: RequestHead, hosts: Sequence[str]) -> None:
    """Raises Misdirected and CrossSite, for what a browser was led to send: programs have no page.

    Another deployment's page is another origin's: its author may be hostile to this one.
    """
    refusal = OwnHosts(route.host, (*hosts, *route.hosts)).refusal([_text(request.host)])
    if refusal:
        raise Misdirected(f"{route.name}: {refusal}")
    if route.cors_in_replica:
        return
    browsed = RequestContext(
        _text(request.method),
        _text(request.host),
        _text(request.origin),
        _text(request.site),
        _text(request.value(b"sec-fetch-mode")),
        _text(request.value(b"sec-fetch-dest")),
        secure=bool(route.tls_certificate),
    )
    if is_foreign(browsed, hosts, route.cors.allows if route.cors else nobody):
        origin = REFUSED.format(origin=(browsed.origin or browsed.site)[:100])
        raise CrossSite(f"{route.name}: {origin} Allow it with the service's http.cors.")


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _organization(route: Route, request: RequestHead) -> str:
    name = request.value(route.organization_header.lower().encode())
    return name[:ORGANIZATION_BYTES].decode("latin-1")


def _is_task_read(route: Route, request: RequestHead) -> bool:
    if not route.tasks and not route.internal:
        return False
    task, _, what = request.path.rpartition(b"/")
    if (request.method, what) not in TASK_READS:
        return False
    return route.internal or task.decode("latin-1") in route.tasks


def _authorize(authorization: bytes, route: Route, tokens: AcceptedTokens | None) -> None:
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Unauthorized(f"This endpoint needs a token: send {TOKEN_SENT}.")
    digest = hashlib.sha256(token.strip()).hexdigest()
    if route.tokens_of:
        deployment = route.name.partition("/")[2].partition("#")[0]  # without its version
        wall = datetime.now(UTC).timestamp()
        if tokens is not None and tokens.admits(route.tokens_of, deployment, digest, wall):
            return
    # Every digest is compared, so that the time says nothing of which one, or how far, it matched.
    matches = [hmac.compare_digest(digest, known) for known in route.token_digests or ()]
    if not any(matches):
        raise Unauthorized(
            f"The bearer token is not one of this endpoint's: send {TOKEN_SENT}. Tokens of the API "
            "are not taken here."
        )
