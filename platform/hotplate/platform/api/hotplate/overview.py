"""Our own routes about the platform as a whole: how its parts are, and what happened to them.

This folder is what our own commands and pages read: `deployments` says how one deployment is and
what was decided on it, `quotas` and `standbys` are read by everybody and set by the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from aiohttp import web

from hotplate.deploy.engine import Node
from hotplate.platform.api.hotplate.deployments import plain
from hotplate.platform.api.web.requests import access, organization, query_number
from hotplate.platform.store.history import History
from hotplate.platform.store.records import EventRecord

Capacity = Mapping[str, Node]


class ReadEvents(Protocol):
    """What happened to the platform itself."""

    async def last(self, limit: int) -> Sequence[EventRecord]:
        """Newest first."""

    def mark(self) -> object:
        """Another one when there are more."""


class OverviewRoutes:
    """`events` are the platform's own; `roles`, `disks` and `short` are
    asked at each request, as JSON; `unwalled` is why replicas are not kept apart from the platform
    and from each other, "" where they are; `gpus` is how many GPUs do what."""

    def __init__(
        self,
        history: History,
        events: ReadEvents,
        capacity: Callable[[], Capacity],
        roles: Callable[[], Sequence[dict[str, Any]]],
        disks: Callable[[], Sequence[dict[str, Any]]],
        short: Callable[[], Sequence[str]],
        unwalled: str = "",
        gpus: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._history = history
        self._events = events
        self._capacity = capacity
        self._roles = roles
        self._disks = disks
        self._short = short
        self._unwalled = unwalled
        self._gpus = gpus

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/hotplate/platform", self.platform),
            web.get("/api/v1/hotplate/events", self.events),
        ]

    async def platform(self, request: web.Request) -> web.Response:
        """The platform's processes, its disks, its nodes' resources, and whatever is short."""
        return web.json_response(self.described())

    def described(self) -> dict[str, Any]:
        """The same, as JSON."""
        capacity = self._capacity()
        nodes = [
            {
                "name": name,
                "in_all": asdict(node.in_all),
                "taken": asdict(node.taken),
                "cpus": node.cpus,
                "labels": dict(node.labels),
            }
            for name, node in capacity.items()
        ]
        return {
            "roles": list(self._roles()),
            "disks": list(self._disks()),
            "nodes": nodes,
            "gpus": _gpus(capacity.values(), self._gpus()),
            "short": list(self._short()),
            "walls": {"up": not self._unwalled, "why": self._unwalled},
        }

    async def events(self, request: web.Request) -> web.Response:
        """What happened to every deployment of the caller's, newest first; an operator also sees
        what happened to the platform."""
        limit = query_number(request, "count", 100)
        mine, operator = organization(request).id, access(request).operator
        return web.json_response(await self.happened(mine, limit, operator=operator))

    async def happened(
        self, organization_id: int, limit: int, *, operator: bool
    ) -> list[dict[str, Any]]:
        """The same, as JSON."""
        of_deployments = self._history.events_of_all
        found = await self._history.run(of_deployments, organization_id, limit)
        found = [*found, *(await self._events.last(limit) if operator else ())]
        found.sort(key=lambda event: event.at, reverse=True)
        return plain(found[:limit])

    def mark(self) -> object:
        """Another one when something was added to the platform's own events."""
        return self._events.mark()


def _gpus(nodes: Iterable[Node], uses: Mapping[str, float]) -> dict[str, float]:
    """How many there are `in_all`, do what, and are `free`: standbys hold what replicas leave."""
    there, taken = 0.0, uses.get("standby", 0.0)
    for node in nodes:
        there, taken = there + node.in_all.gpus, taken + node.taken.gpus
    return {"in_all": there, **uses, "free": max(0.0, there - taken)}
