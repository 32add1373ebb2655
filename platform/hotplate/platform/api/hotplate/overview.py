"""Our own routes about the platform as a whole: how its parts are, and what happened to them.

This folder is what our own commands and pages read: `deployments` says how one deployment is and
what was decided on it, `quotas` and `standbys` are read by everybody and set by the operator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aiohttp import web

from hotplate.deploy.engine import Node
from hotplate.platform.api.hotplate.deployments import plain
from hotplate.platform.api.web.requests import access, organization, query_number
from hotplate.platform.store.history import History
from hotplate.platform.store.records import EventRecord

Capacity = Mapping[str, Node]


class OverviewRoutes:
    """`events` gives the platform's own last ones, newest first; `roles`, `disks` and `short` are
    asked at each request, as JSON; `unwalled` is why replicas are not kept apart from the platform
    and from each other, "" where they are."""

    def __init__(
        self,
        history: History,
        events: Callable[[int], Awaitable[Sequence[EventRecord]]],
        capacity: Callable[[], Capacity],
        roles: Callable[[], Sequence[dict[str, Any]]],
        disks: Callable[[], Sequence[dict[str, Any]]],
        short: Callable[[], Sequence[str]],
        unwalled: str = "",
    ) -> None:
        self._history = history
        self._events = events
        self._capacity = capacity
        self._roles = roles
        self._disks = disks
        self._short = short
        self._unwalled = unwalled

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/hotplate/platform", self.platform),
            web.get("/api/v1/hotplate/events", self.events),
        ]

    async def platform(self, request: web.Request) -> web.Response:
        """The platform's processes, its disks, its nodes' resources, and whatever is short."""
        nodes = [
            {
                "name": name,
                "in_all": asdict(node.in_all),
                "taken": asdict(node.taken),
                "cpus": node.cpus,
                "labels": dict(node.labels),
            }
            for name, node in self._capacity().items()
        ]
        return web.json_response(
            {
                "roles": list(self._roles()),
                "disks": list(self._disks()),
                "nodes": nodes,
                "short": list(self._short()),
                "walls": {"up": not self._unwalled, "why": self._unwalled},
            }
        )

    async def events(self, request: web.Request) -> web.Response:
        """What happened to every deployment of the caller's, newest first; an operator also sees
        what happened to the platform."""
        limit = query_number(request, "count", 100)
        mine = organization(request).id
        of_deployments = await self._history.run(self._history.events_of_all, mine, limit)
        found = [*of_deployments, *(await self._events(limit) if access(request).operator else ())]
        found.sort(key=lambda event: event.at, reverse=True)
        return web.json_response(plain(found[:limit]))
