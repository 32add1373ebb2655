"""What Prometheus sees of the seconds that replicas held GPUs, read when it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

GpuSeconds = Mapping[tuple[str, str, str, str], float]
"""By organization, deployment, service and use."""


class GpuSecondsMetrics(Collector):
    """A deployment that is gone has no line; `deployment` is `ORGANIZATION/NAME`, as in all other
    metrics, by which each organization is shown its own."""

    def __init__(self, seconds: Callable[[], GpuSeconds]) -> None:
        self._seconds = seconds

    def describe(self) -> Iterable[Metric]:
        """None by name, as nothing is known yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "hotplate_controller_gpu_seconds",
            "Seconds of GPUs that replicas held: busy (a slot is taken), idle, or starting",
            labels=["organization", "deployment", "service", "use"],
        )
        for (organization, deployment, service, use), seconds in sorted(self._seconds().items()):
            named = f"{organization}/{deployment}"
            family.add_metric([organization, named, service, use], seconds)
        yield family
