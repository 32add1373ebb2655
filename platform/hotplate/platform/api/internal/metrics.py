"""`/metrics` of the control plane: for a token its organization's lines, for an operator's all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric, generate_latest

from hotplate.machine.access.bearer import has_token
from hotplate.platform.api.web.access import OF_METRICS, Access, check

if TYPE_CHECKING:
    Admit = Callable[[web.Request], Awaitable[Access]]

ACTS_FOR = "X-Hotplate-Organization"
"""With it, an operator sees that organization's lines only."""


class Collects(Protocol):
    """What has metrics."""

    def collect(self) -> Iterable[Metric]: ...


class OrganizationMetrics:
    """Of all metrics, the lines of one organization's deployments. What has no deployment is about
    the installation, or about who else shares it."""

    def __init__(self, metrics: Collects, organization: str) -> None:
        self._metrics = metrics
        self._organization = organization

    def collect(self) -> Iterator[Metric]:
        """Families without a line of it are left out."""
        for family in self._metrics.collect():
            mine = [one for one in family.samples if self._is_mine(one.labels)]
            if mine:
                shown = copy(family)
                shown.samples = mine
                yield shown

    def _is_mine(self, labels: dict[str, str]) -> bool:
        organization, named, _ = labels.get("deployment", "").partition("/")
        return bool(named) and organization == self._organization


class MetricsRoutes:
    """`admit` says who calls; `open_to_all` lets everybody read all."""

    def __init__(
        self, cluster_token: str, admit: Admit, registry: CollectorRegistry, *, open_to_all: bool
    ) -> None:
        self._cluster_token = cluster_token
        self._admit = admit
        self._registry = registry
        self._open_to_all = open_to_all

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        """Raises Unauthorized, Forbidden and NotFound."""
        shown: Collects = self._registry
        if not self._open_to_all and not has_token(request, self._cluster_token):
            access = await self._admit(request)
            check(access, OF_METRICS)
            if not access.operator or ACTS_FOR in request.headers:
                shown = OrganizationMetrics(self._registry, access.user.organization.name)
        return web.Response(body=generate_latest(shown), content_type="text/plain")
