"""What Prometheus sees of the memory that replicas take, read when it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hotplate.deploy.engine import Replica


class MemoryMetrics(Collector):
    """One sample per deployment and service, at the time of the scrape."""

    def __init__(self, replicas: Callable[[], Sequence[Replica]]) -> None:
        self._replicas = replicas

    def describe(self) -> Iterable[Metric]:
        """None by name: a registry would ask for them before there is an event loop."""
        return ()

    def collect(self) -> Iterable[Metric]:
        taken = Counter[tuple[str, str]]()
        for replica in self._replicas():
            name = f"{replica.key.organization}/{replica.key.deployment}"
            taken[name, replica.key.service] += replica.memory_bytes
        family = GaugeMetricFamily(
            "hotplate_controller_replicas_memory_bytes",
            "Memory that is the replicas' own: a page that n processes share counts 1/n",
            labels=["deployment", "service"],
        )
        for labels, size_bytes in taken.items():
            family.add_metric(labels, size_bytes)
        yield family
