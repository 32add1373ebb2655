"""What the controller shows to Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hotplate.deploy.engine import Replica
from hotplate.platform.store.records import RolloutOutcome

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600, 1800)


class ControllerMetrics:
    """Cold starts, crashes and replica counts, by `organization/deployment` and service."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cold_start = _seconds(
            registry,
            "hotplate_controller_cold_start_seconds",
            "From wanted to ready, per replica",
        )
        self.phase = _seconds(
            registry,
            "hotplate_controller_cold_start_phase_seconds",
            "Length of each phase of a cold start; phases overlap",
            "phase",
        )
        self.share = _seconds(
            registry,
            "hotplate_controller_cold_start_share_seconds",
            "How long a cold start waited for each phase; the shares add up to the whole",
            "phase",
        )
        self.crashes = Counter(
            "hotplate_controller_replica_crashes",
            "Replicas that ended by themselves",
            ["deployment", "service"],
            registry=registry,
        )
        self.rollouts = Counter(
            "hotplate_controller_rollouts",
            "Roll-outs that have ended, by how: ready, failed",
            ["deployment", "outcome"],
            registry=registry,
        )
        self.replicas = Gauge(
            "hotplate_controller_replicas_count",
            "Replicas by state",
            ["deployment", "service", "state"],
            registry=registry,
        )
        self._counted: Counts[tuple[str, str, str]] = Counts()
        """What `replicas` shows."""
        self.desired = Gauge(
            "hotplate_controller_desired_replicas_count",
            "Replicas that the autoscaler wants",
            ["deployment", "service"],
            registry=registry,
        )

    def wants(self, deployment: str, service: str, count: int) -> None:
        """Note how many replicas are wanted. What may happen to them is counted from 0 on, so that
        `increase()` sees the first time, too."""
        self.desired.labels(deployment, service).set(count)
        self.crashes.labels(deployment, service)
        for outcome in (RolloutOutcome.READY, RolloutOutcome.FAILED):
            self.rollouts.labels(deployment, outcome.value)

    def crashed(self, replica: Replica) -> None:
        """Note a replica that has ended by itself."""
        self.crashes.labels(_name(replica), replica.key.service).inc()

    def started(self, replica: Replica) -> None:
        """Note a finished cold start."""
        self.cold_start.labels(_name(replica), replica.key.service).observe(replica.cold_start_s)

    def timed(self, replica: Replica) -> None:
        """Note the phases of a finished cold start."""
        labels = (_name(replica), replica.key.service)
        length_s, share_s = defaultdict[str, float](float), defaultdict[str, float](float)
        for phase in replica.phases:
            length_s[phase.name] += (phase.end or phase.start) - phase.start
            share_s[phase.name] += phase.share_s
        for name in length_s:
            self.phase.labels(*labels, name).observe(length_s[name])
            self.share.labels(*labels, name).observe(share_s[name])

    def forget(self, deployment: str) -> None:
        """Drop every figure of a deployment that is gone; `deployment` as in the label."""
        labels = {"deployment": deployment}
        for histogram in (self.cold_start, self.phase, self.share):
            histogram.remove_by_labels(labels)
        for metric in (self.crashes, self.rollouts, self.replicas, self.desired):
            metric.remove_by_labels(labels)
        self._counted = Counts({k: n for k, n in self._counted.items() if k[0] != deployment})

    def count(self, replicas: Sequence[Replica]) -> None:
        """Set the replica gauges to what there is now."""
        counts = Counts((_name(each), each.key.service, each.state.value) for each in replicas)
        for gone in self._counted.keys() - counts.keys():
            self.replicas.remove(*gone)
        for labels, count in counts.items():
            if self._counted.get(labels) != count:
                self.replicas.labels(*labels).set(count)
        self._counted = counts


def _seconds(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Histogram:
    labelled = ["deployment", "service", *labels]
    return Histogram(name, text, labelled, buckets=_SECONDS, registry=registry)


def _name(replica: Replica) -> str:
    return f"{replica.key.organization}/{replica.key.deployment}"
