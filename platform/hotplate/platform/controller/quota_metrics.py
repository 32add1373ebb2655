"""What Prometheus sees of quotas and of tokens that end, read when it asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import Amounts
from hotplate.platform.controller.gateways.route_links import Tokens


class QuotaMetrics(Collector):
    """Of organizations that have a limit."""

    def __init__(
        self,
        quotas: Callable[[], Mapping[str, Quota]],
        usage: Callable[[str], Amounts],
        tokens: Callable[[], Tokens],
    ) -> None:
        """`quotas` by organization; `tokens` are those of callers."""
        self._quotas = quotas
        self._usage = usage
        self._tokens = tokens

    def describe(self) -> Iterable[Metric]:
        """None by name: a registry would ask for them before there is an event loop."""
        return ()

    def collect(self) -> Iterable[Metric]:
        used = GaugeMetricFamily(
            "hotplate_controller_quota_used_ratio",
            "What an organization's replicas have of its quota, of each resource with a limit",
            labels=["organization", "resource"],
        )
        for organization, quota in self._quotas().items():
            amounts = self._usage(organization)
            for resource, limit in quota.limit._asdict().items():
                if 0 < limit < math.inf:
                    used.add_metric([organization, resource], getattr(amounts, resource) / limit)
        ends = GaugeMetricFamily(
            "hotplate_controller_token_expires_timestamp_seconds",
            "When the first of an organization's tokens of callers ends, in Unix seconds",
            labels=["organization"],
        )
        for organization, accepted in self._tokens().items():
            at = min((each.expires_at or math.inf for each in accepted), default=math.inf)
            if at < math.inf:
                ends.add_metric([organization], at)
        yield from (used, ends)
