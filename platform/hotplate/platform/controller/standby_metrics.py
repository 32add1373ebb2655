"""What Prometheus sees of the standbys, read when it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hotplate.deploy.standbys import StandbyView

_METRICS: Sequence[tuple[str, str, Callable[[StandbyView], float]]] = (
    ("ready_count", "Warm processes that wait for a replica", lambda view: view.ready),
    ("making_count", "Processes that are getting warm", lambda view: view.making),
    ("wanted_count", "Warm processes that there should be", lambda view: view.wanted),
    ("memory_bytes", "Memory that is their own", lambda view: view.memory_bytes),
    ("hits_count", "Starts of the last seven days that had one", lambda view: view.hits),
    ("templates_count", "Those of them that fork replicas", lambda view: view.templates),
    ("forks_count", "Replicas that were forked by this platform", lambda view: view.forks),
    ("starts_count", "All starts of the last seven days", lambda view: view.starts),
)


class StandbyMetrics(Collector):
    """One sample per environment and pool, at the time of the scrape."""

    def __init__(self, views: Callable[[], Sequence[StandbyView]]) -> None:
        self._views = views

    def describe(self) -> Iterable[Metric]:
        """None by name: a registry would ask for them before there is an event loop."""
        return ()

    def collect(self) -> Iterable[Metric]:
        views = self._views()
        for name, text, value in _METRICS:
            family = GaugeMetricFamily(
                f"hotplate_deploy_standby_{name}", text, labels=["environment", "pool"]
            )
            for view in views:
                family.add_metric([view.environment, view.pool], value(view))
            yield family
