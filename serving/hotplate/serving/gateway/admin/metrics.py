"""A gateway's counters for Prometheus.

To count is to add to plain numbers; the Prometheus objects are made only for a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hotplate.serving.gateway.errors import DeadlineExceeded, NoCapacity
from hotplate.serving.gateway.protocol.routes import ANSWER_KINDS
from hotplate.serving.gateway.telemetry.counters import STATUS_CLASSES, RouteCounters
from hotplate.serving.gateway.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from hotplate.serving.gateway.route_server import RouteServer

_ALERTED = {DeadlineExceeded.code: 0, NoCapacity.code: 0}
"""Shown before they happen: `increase()` sees nothing of a line that begins with its first one."""
OTHERS = "other"
"""All organizations without a weight of their own."""


class GatewayCollector(Collector):
    """Reads the routes' numbers for Prometheus."""

    def __init__(self, routes: Callable[[], Iterable[RouteServer]]) -> None:
        self._routes = routes

    def collect(self) -> Iterator[Metric]:
        routes = list(self._routes())
        yield from _requests(routes)
        yield from _gauges(routes)
        yield from _histograms(routes)


def registry_of(routes: Callable[[], Iterable[RouteServer]]) -> CollectorRegistry:
    """A registry of its own, so that no metric of the process gets into it."""
    registry = CollectorRegistry()
    registry.register(GatewayCollector(routes))
    return registry


def _requests(routes: Iterable[RouteServer]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "hotplate_gateway_requests",
        "Answers begun, by class of status; left = the caller left before.",
        labels=["route", "status"],
    )
    repeats = CounterMetricFamily(
        "hotplate_gateway_repeats",
        "Requests that went out once more, because their replica refused, or died before it ran "
        "them or where they may run twice.",
        labels=["route"],
    )
    refusals = CounterMetricFamily(
        "hotplate_gateway_refusals",
        "Requests that the gateway answered with an error of its own, by code.",
        labels=["route", "reason"],
    )
    pushed_out = CounterMetricFamily(
        "hotplate_gateway_pushed_out_requests",
        "Of the refusals, requests that had waited and made room for another organization's.",
        labels=["route"],
    )
    answers = CounterMetricFamily(
        "hotplate_gateway_version_answers",
        "What replicas of each version and revision have answered, by class of status; broken = "
        "the answer was cut.",
        labels=["route", "version", "status"],
    )
    for route in routes:
        for version, counts in route.queue.answers.by_kind(ANSWER_KINDS).items():
            for kind, count in counts.items():
                answers.add_metric([route.route.name, version, kind], count)
        counters = route.counters
        for index, status in enumerate(STATUS_CLASSES, start=1):
            requests.add_metric([route.route.name, status], counters.answers[index])
        requests.add_metric([route.route.name, "left"], counters.left)
        repeats.add_metric([route.route.name], counters.repeats)
        for code, count in sorted({**_ALERTED, **counters.refusals}.items()):
            refusals.add_metric([route.route.name, code], count)
        pushed_out.add_metric([route.route.name], counters.pushed_out)
    yield from (requests, answers, refusals, pushed_out, repeats)


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
    abandoned = GaugeMetricFamily(
        "hotplate_gateway_abandoned_handlers",
        "WebSockets' handlers that go on without a slot though their callers have gone.",
        labels=["route"],
    )
    slots = GaugeMetricFamily(
        "hotplate_gateway_slots", "Slots of the open replicas.", labels=["route"]
    )
    by_organization = GaugeMetricFamily(
        "hotplate_gateway_organization_queued_requests",
        "Of those that wait, each organization's that has a weight, and all others' together.",
        labels=["route", "organization"],
    )
    for route in routes:
        for organization, count in _by_organization(route).items():
            by_organization.add_metric([route.route.name, organization], count)
        labels = [route.route.name]
        queued.add_metric(labels, route.queue.queued)
        queued_bytes.add_metric(labels, route.queue.queued_bytes)
        in_flight.add_metric(labels, route.queue.in_flight)
        abandoned.add_metric(labels, sum(route.context.hangups.by_replica.values()))
        slots.add_metric(labels, route.queue.slots)
    yield from (queued, queued_bytes, by_organization, in_flight, abandoned, slots)


def _by_organization(route: RouteServer) -> dict[str, int]:
    """Waiting requests by organization. Callers may name any number of organizations, so only those
    that the route names are counted one by one."""
    if not route.route.organization_header:
        return {}
    counts = {**{name: 0 for name, _ in route.route.weights}, OTHERS: 0}
    for flow in route.queue.fair_queue.waiting:
        counts[flow.name if flow.name in counts else OTHERS] += flow.queue.count
    return counts


HISTOGRAMS: Sequence[tuple[str, str, Callable[[RouteCounters], Histogram]]] = (
    (
        "hotplate_gateway_wait_seconds",
        "From a request's arrival until a replica had a slot for it.",
        lambda counters: counters.waits,
    ),
    (
        "hotplate_gateway_first_byte_seconds",
        "From a request's arrival until a replica's answer to it began.",
        lambda counters: counters.first_bytes,
    ),
    (
        "hotplate_gateway_answer_seconds",
        "From a request's arrival until a replica's answer to it had been passed on whole.",
        lambda counters: counters.totals,
    ),
)


def _histograms(routes: Iterable[RouteServer]) -> Iterator[Metric]:
    for name, what, of in HISTOGRAMS:
        family = HistogramMetricFamily(name, what, labels=["route"])
        for route in routes:
            histogram = of(route.counters)
            family.add_metric([route.route.name], histogram.buckets(), histogram.sum_s)
        yield family
