"""What deployments are and do, added up: of the services and replicas of one, and of all of an
organization's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from aiohttp import web

Json = Mapping[str, Any]


def of_one(live: Json, number: int) -> dict[str, Any]:
    """`ready`, `wanted`, `in_flight` and `queued` of what the controller sees of a deployment, and
    `last_cold_start_s`, seconds until the newest replica was ready (None = none is); `number` is
    the revision whose replicas are wanted. Pure."""
    services, replicas = live["services"], live["replicas"]
    started = [one for one in replicas if one.get("ready_at")]
    newest = max(started, key=lambda one: str(one["ready_at"]), default={"cold_start_s": None})
    return {
        "ready": sum(one["state"] == "ready" for one in replicas),
        "wanted": sum(
            one["desired"] or 0 if one["granted"] is None else one["granted"]
            for one in services
            if one["revision"] == number
        ),
        "in_flight": sum(one["in_flight"] for one in services),
        "queued": sum(one["queued"] for one in services),
        "last_cold_start_s": newest["cold_start_s"],
    }


def of_all(summaries: Sequence[Json]) -> dict[str, Any]:
    """The same of deployments as lists show them, and how many there are of each status. Pure."""

    def total(member: str, name: str) -> float:
        values: list[float] = [one[member][name] for one in summaries]
        return round(sum(values), 3)

    return {
        "deployments": len(summaries),
        "by_status": dict(sorted(Counter(one["status"] for one in summaries).items())),
        **{name: total("totals", name) for name in ("ready", "wanted", "in_flight", "queued")},
        "rates": {name: total("rates", name) for name in ("requests_per_s", "errors_per_s")},
    }


def seconds_between(begin: str, end: str | None) -> float | None:
    """From one moment in ISO 8601 to another; None = it has not come."""
    if end is None:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds(), 3)


class Summaries(Protocol):
    async def summaries(self, request: web.Request) -> Sequence[Json]:
        """All deployments of the caller's organization, as lists show them."""


class TotalsRoutes:
    def __init__(self, deployments: Summaries) -> None:
        self._deployments = deployments

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/hotplate/totals", self.totals)]

    async def totals(self, request: web.Request) -> web.Response:
        """`GET /api/v1/hotplate/totals`: what the deployments that the caller sees are and do, all
        together."""
        return web.json_response(of_all(await self._deployments.summaries(request)))
