"""What a control plane shows to Prometheus of who acts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hotplate.platform.leadership.candidate import Candidate


class LeadershipMetrics(Collector):
    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "hotplate_control_plane_leader",
            "1 where this control plane acts, 0 where it waits",
            value=float(self._candidate.acts),
        )
        yield GaugeMetricFamily(
            "hotplate_controller_epoch",
            "How often a control plane has begun to act, as this one knows it",
            value=float(self._candidate.epoch),
        )
