"""What Prometheus sees of quotas and of tokens that end, read when it asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import Amounts


class QuotaMetrics(Collector):
    """Of organizations that have a limit."""

    def __init__(
        self,
        quotas: Callable[[], Mapping[str, Quota]],
        usage: Callable[[str], Amounts],
        token_ends: Callable[[], Mapping[str, Sequence[float]]],
        now: Callable[[], float],
    ) -> None:
        """All by organization; `token_ends` says when tokens expire, in Unix seconds."""
        self._quotas = quotas
        self._usage = usage
        self._token_ends = token_ends
        self._now = now

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
            "When the first of an organization's tokens expires, in Unix seconds",
            labels=["organization"],
        )
        now = self._now()
        for organization, found in self._token_ends().items():
            for at in [each for each in found if each > now][:1]:
                ends.add_metric([organization], at)
        yield from (used, ends)
