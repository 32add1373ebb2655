"""`/metrics` of the control plane: for a token its organization's lines, for an operator's all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from hotplate.machine.access.bearer import has_token
from hotplate.machine.access.metrics_check import ACTS_FOR, PATH
from hotplate.machine.access.metrics_page import Collects, metrics_page
from hotplate.machine.access.metrics_reader import ALL
from hotplate.platform.api.web.access import OF_METRICS, Access, check

if TYPE_CHECKING:
    Admit = Callable[[web.Request], Awaitable[Access]]


class MetricsRoutes:
    """`admit` says who calls; `open_to_all` lets everybody read all."""

    def __init__(
        self, cluster_token: str, admit: Admit, metrics: Collects, *, open_to_all: bool
    ) -> None:
        self._cluster_token = cluster_token
        self._admit = admit
        self._metrics = metrics
        self._open_to_all = open_to_all

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH, self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        """Raises Unauthorized, Forbidden and NotFound."""
        organization = request.headers.get(ACTS_FOR, ALL)
        if not self._open_to_all and not has_token(request, self._cluster_token):
            access = await self._admit(request)
            check(access, OF_METRICS)
            if not access.operator or organization:
                organization = access.user.organization.name
        return metrics_page(self._metrics, organization)
