"""What a gateway counts, and how Prometheus reads it.

Counting is adding to plain numbers; the Prometheus objects are made only when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from hotplate.serving.gateway.route_server import RouteServer

WAIT_BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From no queue at all to a long cold start."""
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class RouteCounters:
    """One route's numbers since the gateway started."""

    def __init__(self) -> None:
        self.answers = [0] * (len(STATUS_CLASSES) + 1)
        self.left = 0
        """Callers that left before an answer began."""
        self.refusals: dict[str, int] = {}
        """By error code."""
        self.waits = [0] * (len(WAIT_BOUNDS_S) + 1)
        self.waits_sum_s = 0.0

    def answered(self, status: int) -> None:
        self.answers[min(status // 100, 5)] += 1

    def caller_left(self) -> None:
        self.left += 1

    def refused(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def waited(self, wait_s: float) -> None:
        self.waits[bisect_left(WAIT_BOUNDS_S, wait_s)] += 1
        self.waits_sum_s += wait_s


class GatewayCollector(Collector):
    """Reads the routes' numbers for Prometheus."""

    def __init__(self, routes: Callable[[], Iterable[RouteServer]]) -> None:
        self._routes = routes

    def collect(self) -> Iterator[Metric]:
        routes = list(self._routes())
        yield from _requests(routes)
        yield from _gauges(routes)
        yield _waits(routes)


def registry_of(routes: Callable[[], Iterable[RouteServer]]) -> CollectorRegistry:
    """A registry of its own, so that nothing of the process leaks into it."""
    registry = CollectorRegistry()
    registry.register(GatewayCollector(routes))
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


def _requests(routes: Iterable[RouteServer]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "hotplate_gateway_requests",
        "Answers begun, by class of status; left = the caller left before.",
        labels=["route", "status"],
    )
    refusals = CounterMetricFamily(
        "hotplate_gateway_refusals",
        "Requests that the gateway answered with an error of its own, by code.",
        labels=["route", "reason"],
    )
    for route in routes:
        counters = route.counters
        for index, status in enumerate(STATUS_CLASSES, start=1):
            requests.add_metric([route.route.name, status], counters.answers[index])
        requests.add_metric([route.route.name, "left"], counters.left)
        for code, count in sorted(counters.refusals.items()):
            refusals.add_metric([route.route.name, code], count)
    yield requests
    yield refusals


def _gauges(routes: Iterable[RouteServer]) -> Iterator[Metric]:
    queued = GaugeMetricFamily(
        "hotplate_gateway_queued_requests", "Requests that wait.", labels=["route"]
    )
    queued_bytes = GaugeMetricFamily(
        "hotplate_gateway_queued_bytes", "Bytes of the requests that wait.", labels=["route"]
    )
    in_flight = GaugeMetricFamily(
        "hotplate_gateway_in_flight_requests", "Slots taken.", labels=["route"]
    )
    slots = GaugeMetricFamily(
        "hotplate_gateway_slots", "Slots of the open replicas.", labels=["route"]
    )
    for route in routes:
        labels = [route.route.name]
        queued.add_metric(labels, route.queue.queued)
        queued_bytes.add_metric(labels, route.queue.queued_bytes)
        in_flight.add_metric(labels, route.queue.in_flight)
        slots.add_metric(labels, route.queue.slots)
    yield from (queued, queued_bytes, in_flight, slots)


def _waits(routes: Iterable[RouteServer]) -> Metric:
    waits = HistogramMetricFamily(
        "hotplate_gateway_wait_seconds",
        "From a request's arrival until a replica had a slot for it.",
        labels=["route"],
    )
    for route in routes:
        total = 0
        buckets: list[tuple[str, float]] = []
        bounds = [*map(str, WAIT_BOUNDS_S), "+Inf"]
        for bound, count in zip(bounds, route.counters.waits, strict=True):
            total += count
            buckets.append((bound, total))
        waits.add_metric([route.route.name], buckets, route.counters.waits_sum_s)
    return waits
