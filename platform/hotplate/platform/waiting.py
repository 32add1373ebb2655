"""What a control plane serves while another one acts: what it knows itself, and all else passed on.

Bentos, models, secrets, the audit and who somebody is are in the database, so it answers what is
asked of them. What is changed is changed by the one that acts, which has to know of it.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry

from hotplate.deploy.process.children import ChildReaper
from hotplate.machine.access.bearer import has_token
from hotplate.machine.access.middleware import refuse_cross_site
from hotplate.platform.api.bentocloud.artifacts import ArtifactRoutes
from hotplate.platform.api.bentocloud.auth import Auth, answer_errors
from hotplate.platform.api.bentocloud.org_secrets import SecretRoutes
from hotplate.platform.api.bentocloud.repositories import RepositoryRoutes
from hotplate.platform.api.hotplate.audit import AuditRoutes
from hotplate.platform.api.hotplate.health import HealthRoutes
from hotplate.platform.api.internal.metrics import MetricsRoutes
from hotplate.platform.api.openapi import document
from hotplate.platform.api.web import http_errors
from hotplate.platform.api.web.listener import ApiListener
from hotplate.platform.api.web.passing_on import PassingOn
from hotplate.platform.api.web.request_metrics import RequestMetrics
from hotplate.platform.api.web.requests import Handler
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.errors import Unauthorized
from hotplate.platform.leadership.candidate import Candidate
from hotplate.platform.settings import PlatformSettings
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from hotplate.serving.gateway.protocol.control_planes import LEADER_FIELD

log = logging.getLogger("hotplate.control-plane")

LINES = ("/internal/gateway", "/internal/tasks/line")
"""What gateways keep open to the one that acts, and to no other."""


async def until_elected(
    candidate: Candidate,
    store: Store,
    shown: ApiSettings,
    settings: PlatformSettings,
    stopped: asyncio.Event,
    registry: CollectorRegistry,
    metrics: RequestMetrics,
) -> ApiListener | None:
    """Returns when this control plane acts: with what listens already, if it had to wait; or when
    it is `stopped` before. `metrics` are part of what the `registry` has. Raises CannotStart,
    OSError, StoreFailed."""
    if await candidate.look() is not None:
        return None
    passing = PassingOn(lambda: candidate.leader, shown.cluster_token)
    app = make_waiting_app(
        store,
        shown,
        passing,
        candidate,
        registry,
        metrics,
        metrics_open_to_all=not settings.metrics_need_token,
    )
    listener = ApiListener(app)
    reaping = ChildReaper()
    elected = asyncio.create_task(candidate.elected(), name="election")
    stopping = asyncio.create_task(stopped.wait())
    try:
        await listener.start(settings.host, settings.port)
        log.info("%s:%s waits; %s acts", settings.host, settings.port, candidate.seen.url)
        await asyncio.wait({elected, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            elected.cancel()
        else:
            log.info("epoch %d: this control plane acts now", elected.result())
    finally:
        stopping.cancel()
        reaping.end()
        passing.cut()
        if not candidate.acts:
            await listener.close()
            await candidate.give_up()
        await passing.close()
    return listener


def make_waiting_app(
    store: Store,
    settings: ApiSettings,
    passing: PassingOn,
    candidate: Candidate,
    registry: CollectorRegistry,
    metrics: RequestMetrics,
    *,
    metrics_open_to_all: bool,
) -> web.Application:
    """The caller keeps the store and `passing`, and closes them afterwards."""
    auth = Auth(store, settings, refused=metrics.refused_login)
    token = settings.cluster_token
    app = web.Application(
        middlewares=[
            metrics.middleware(),
            refuse_cross_site(settings.own),
            answer_errors,
            _for_our_own(passing, auth.middleware()),
        ],
        client_max_size=settings.json_limit_bytes,
    )
    alone = bool(settings.deployments_url)
    health = HealthRoutes(store, lambda: True, lambda: candidate.epoch, alone=alone, waits=True)
    groups = [
        health.routes(),
        MetricsRoutes(token, auth.admit_bearer, registry, open_to_all=metrics_open_to_all).routes(),
        auth.routes(),
        document.routes(),
        *(RepositoryRoutes(kind, store.artifacts).routes() for kind in Kind),
        *(ArtifactRoutes(kind, store.artifacts).routes() for kind in Kind),
        SecretRoutes(store.secrets, settings).routes(),
        AuditRoutes(store.audit).routes(),
    ]
    app.add_routes([route for group in groups for route in group if route.method == "GET"])

    async def not_here(request: web.Request) -> web.Response:
        if not has_token(request, token):
            raise Unauthorized("the cluster's token is missing or wrong")
        message = "this control plane waits, and another one acts: connect to that one"
        answer = http_errors.response(421, "not_the_leader", message)
        if url := candidate.leader:
            answer.headers[LEADER_FIELD] = url
        return answer

    app.add_routes([web.get(path, not_here) for path in LINES])
    app.router.add_route("*", "/{path:.*}", passing.handle)
    return app


def _for_our_own(passing: PassingOn, authenticate: Middleware) -> Middleware:
    """Callers of what is passed on are the acting one's to judge."""

    @web.middleware
    async def judge(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.handler == passing.handle:
            return await handler(request)
        return await authenticate(request, handler)

    return judge
