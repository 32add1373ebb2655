"""The page `/metrics`: all lines, or those of one organization."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Protocol

from aiohttp import web
from prometheus_client import Metric, generate_latest

from hotplate.machine.access.metrics_check import ACTS_FOR, REFUSAL, MetricsCheck
from hotplate.machine.access.metrics_reader import ALL

OF_DEPLOYMENTS = ("deployment", "route")
"""The labels that begin with `ORGANIZATION/`."""


class Collects(Protocol):
    """What has metrics."""

    def collect(self) -> Iterable[Metric]: ...


class OrganizationMetrics:
    """Of all metrics, the lines of one organization and its deployments. What names neither is
    about the installation, or about who else shares it."""

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
        for label in OF_DEPLOYMENTS:
            organization, named, _ = labels.get(label, "").partition("/")
            if named:
                return organization == self._organization
        return labels.get("organization", "") == self._organization


def answer(request: web.Request, check: MetricsCheck, metrics: Collects) -> web.Response:
    """`GET /metrics` of a server that does not make tokens."""
    organization = check.lines_for(request)
    if organization is None:
        return _refused(401, "unauthorized", REFUSAL)
    named = request.headers.get(ACTS_FOR, "") or organization
    if organization not in (ALL, named):
        return _refused(404, "not_found", f"organization {named!r:.80} does not exist")
    return metrics_page(metrics, named)


def _refused(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def metrics_page(metrics: Collects, organization: str = ALL) -> web.Response:
    """The lines of an organization, or `ALL`."""
    shown = metrics if organization == ALL else OrganizationMetrics(metrics, organization)
    return web.Response(
        body=generate_latest(shown),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
