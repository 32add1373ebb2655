"""Our own routes: what a deployment does now, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, is_dataclass, replace
from datetime import datetime
from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.bentocloud.deployments import (
    advertised_origin,
    changeable,
    named_deployment,
)
from hotplate.platform.api.hotplate.totals import of_one, seconds_between
from hotplate.platform.api.web.etags import tagged
from hotplate.platform.api.web.requests import (
    organization,
    query_count,
    query_filter,
    query_number,
    query_start,
    query_time,
)
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.store.history import DECISIONS_KEPT
from hotplate.platform.store.learnt import of_deciders
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Deployment, Revision

RECENT = 20
"""Decisions, events and revisions on the page of one deployment."""
LINES = 200


class DeploymentStatusRoutes:
    """How the deployments of the caller's organization are, and what was decided on them."""

    def __init__(self, store: Store, controller: ControllerApi, settings: ApiSettings) -> None:
        self._store = store
        self._controller = controller
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        root = "/api/v1/hotplate/deployments"
        one = root + "/{name}"
        return [
            web.get(root, self.list_all),
            web.get(one, self.get),
            web.get(one + "/decisions", self.decisions),
            web.get(one + "/log", self.log),
            web.get(one + "/events", self.events),
            web.get(one + "/cold_starts", self.cold_starts),
            web.get(one + "/logs", self.logs),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET /api/v1/hotplate/deployments?search=&start=&count=`: a summary of each.

        The newest is the first; `search` is a part of a name or of its bento's tag.
        """
        return web.json_response(await self.summaries(request))

    async def summaries(self, request: web.Request) -> list[dict[str, Any]]:
        """The same, as JSON."""
        found, _ = await self._store.run(
            self._store.deployments.page,
            organization(request).id,
            query_filter(request),
            query_start(request),
            query_count(request),
        )
        origin = advertised_origin(request, self._settings)
        return [self.summary(deployment, origin) for deployment in found]

    async def get(self, request: web.Request) -> web.Response:
        """The summary, its revisions, and what was decided and what happened lately."""
        deployment = await named_deployment(self._store.deployments, request)
        detail = await self.detail(deployment, advertised_origin(request, self._settings))
        return tagged(detail, changeable(deployment))

    async def detail(self, deployment: Deployment, origin: str) -> dict[str, Any]:
        """The same, as JSON; `origin` is where deployments are reached, but for the port."""
        key = deployment.id
        revisions = await self._store.run(self._store.revisions.of_deployment, key, RECENT)
        decisions = await self._store.run(self._store.history.decisions, key, RECENT)
        events = await self._store.run(self._store.history.events, key, RECENT)
        detail = {
            "config": deployment.latest.config,
            "canary": _canary(deployment),
            "revisions": [_revision(revision, deployment) for revision in revisions],
            "decisions": plain(decisions),
            "events": plain(events),
            "tasks": await self._store.run(self._store.tasks.counts, key),
            "learnt": await self._store.run(self._learnt, deployment),
        }
        return self.summary(deployment, origin) | detail

    async def decisions(self, request: web.Request) -> web.Response:
        """Why there are, or were at `until`, as many replicas as there are; newest first.

        `count` is how many decisions of each service are answered: 100 by default.
        """
        key = (await named_deployment(self._store.deployments, request)).id
        limit, until = query_number(request, "count", 100), query_time(request, "until")
        decisions = await self._store.run(self._store.history.decisions, key, limit, until)
        return web.json_response(plain(decisions))

    async def log(self, request: web.Request) -> web.Response:
        """All that is kept of demand and decisions, the oldest first, to be simulated again."""
        deployment = await named_deployment(self._store.deployments, request)
        of = {"organization": deployment.organization.name, "deployment": deployment.name}
        recent = self._controller.demands(deployment.id)
        demands = await self._store.run(self._store.history.demands, deployment.id)
        # What was recent may have been written since.
        demands = [*reversed([one for one in recent if one not in demands]), *demands]
        decisions = await self._store.run(
            self._store.history.decisions, deployment.id, DECISIONS_KEPT
        )
        entries = [{"kind": "demand", **of, **one} for one in plain(reversed(demands))]
        entries += [{"kind": "decision", **of, **one} for one in plain(reversed(decisions))]
        return web.json_response(sorted(entries, key=lambda one: str(one["at"])))

    async def events(self, request: web.Request) -> web.Response:
        """`GET …/events?count=100`: what happened to the deployment, newest first."""
        key = (await named_deployment(self._store.deployments, request)).id
        limit = query_number(request, "count", 100)
        return web.json_response(
            plain(await self._store.run(self._store.history.events, key, limit))
        )

    async def cold_starts(self, request: web.Request) -> web.Response:
        """`GET …/cold_starts?count=100`: its replicas' starts with their phases, newest first; of
        each how long it took until it was ready, null while it is not."""
        deployment = await named_deployment(self._store.deployments, request)
        limit = query_number(request, "count", 100)
        found = await self._store.run(self._store.history.cold_starts, deployment.id, limit)
        shown = deployment.organization.shown_pool
        starts = plain([replace(one, pool=shown(one.pool)) for one in found])
        for one in starts:
            one["cold_start_s"] = seconds_between(one["created_at"], one["ready_at"])
        return web.json_response(starts)

    async def logs(self, request: web.Request) -> web.Response:
        """The last lines per replica; `replica` empty = of all."""
        deployment = await named_deployment(self._store.deployments, request)
        replica = request.query.get("replica", "")
        lines = query_number(request, "lines", LINES)
        return web.json_response(await self._controller.logs(deployment.id, replica, lines))

    def _learnt(self, deployment: Deployment) -> dict[str, Any]:
        """What the decider of each service has learnt, as of at most a minute ago; null = nothing
        yet."""
        prefix = of_deciders(deployment.uid)
        services = deployment.latest.config.get("services", {})
        return {name: self._store.learnt.get(prefix + name) for name in services}

    def summary(self, deployment: Deployment, origin: str) -> dict[str, Any]:
        """What lists show of it, as JSON."""
        live = self._controller.live(deployment.id)
        serving = deployment.serving or deployment.latest
        return {
            "name": deployment.name,
            "status": deployment.status,
            "reason": deployment.reason,
            "wanted": deployment.wanted,
            "url": views.deployment_url(deployment, origin),
            "bento": deployment.latest.bento.tag,
            "revision": deployment.latest.number,
            "serving": deployment.serving.number if deployment.serving else None,
            "labels": list(deployment.labels),
            "created_at": deployment.created_at.isoformat(),
            "live": live,
            "totals": of_one(live, serving.number),
            "rates": self._controller.series.rates(
                [deployment.id, *(version.id for version in deployment.versions)]
            ),
        }


def _canary(deployment: Deployment) -> dict[str, Any] | None:
    """As a request asks for it; None = it has none."""
    if not deployment.canary:
        return None
    weights = deployment.canary["weights"]
    return {
        "route_type": deployment.canary["route_type"],
        "route_by": deployment.canary["route_by"],
        "versions": {
            each.version: {
                "bento": each.latest.bento.tag,
                "weight": weights[each.version],
                **{name: each.latest.config[name] for name in ("services", "envs", "secrets")},
            }
            for each in deployment.versions
        },
    }


def _revision(revision: Revision, deployment: Deployment) -> dict[str, Any]:
    serving = deployment.serving
    return {
        "number": revision.number,
        "bento": revision.bento.tag,
        "outcome": revision.outcome,
        "reason": revision.reason,
        "log_tail": list(revision.log_tail),
        "serving": serving is not None and serving.id == revision.id,
        "created_at": revision.created_at.isoformat(),
    }


def plain(records: Iterable[object]) -> list[dict[str, Any]]:
    """Records as JSON: moments in ISO 8601."""
    return [
        {
            key: value.isoformat() if isinstance(value, datetime) else value
            for key, value in asdict(record).items()
        }
        for record in records
        if is_dataclass(record) and not isinstance(record, type)
    ]
