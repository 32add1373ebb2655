"""What Prometheus sees of deployments, and no longer sees of those that are gone."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.phases import Phase
from hotplate.platform.controller.memory_metrics import MemoryMetrics
from hotplate.platform.controller.metrics import ControllerMetrics
from tests.support.control_plane.situations import NOW, replica


def test_nothing_is_kept_of_a_deployment_that_is_gone() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    started = replica("echo-1", phases=(Phase("init", NOW - 5, NOW - 1),))
    metrics.started(started)
    metrics.timed(started)
    metrics.crashed(started)
    metrics.count([started])
    metrics.wants("acme/echo", "Echo", 1)
    metrics.rollouts.labels("acme/echo", "ready").inc()

    def shown() -> set[str]:
        return {
            family.name
            for family in registry.collect()
            for sample in family.samples
            if sample.labels["deployment"] == "acme/echo"
        }

    assert shown() == {family.name for family in registry.collect()}, "each of them has its figures"
    metrics.forget("acme/echo")
    assert shown() == set()


def test_what_may_happen_is_there_before_it_happens_for_the_first_time() -> None:
    """Prometheus sees no increase in a line that begins with 1, and no alert would fire."""
    registry = CollectorRegistry()
    ControllerMetrics(registry).wants("acme/echo", "Echo", 1)
    of = {"deployment": "acme/echo"}
    for outcome in ("ready", "failed"):
        name = "hotplate_controller_rollouts_total"
        assert registry.get_sample_value(name, {**of, "outcome": outcome}) == 0
    name = "hotplate_controller_replica_crashes_total"
    assert registry.get_sample_value(name, {**of, "service": "Echo"}) == 0


def test_the_memory_of_replicas_is_told_by_deployment_and_service() -> None:
    registry = CollectorRegistry()
    found = [replace(replica(name), memory_bytes=size) for name, size in (("a", 3), ("b", 4))]
    registry.register(MemoryMetrics(lambda: found))

    def shown() -> list[tuple[str, float]]:
        (family,) = registry.collect()
        return [(each.labels["deployment"], each.value) for each in family.samples]

    assert shown() == [("acme/echo", 7)]
    found.clear()
    assert shown() == [], "nothing is kept of what is gone"


def test_replicas_are_counted_by_state_as_they_are_now() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)

    def shown() -> dict[tuple[str, str], float]:
        found = (
            sample
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "hotplate_controller_replicas_count"
        )
        return {(each.labels["deployment"], each.labels["state"]): each.value for each in found}

    starting = replica("a", state=ReplicaState.STARTING)
    metrics.count([starting, replica("b")])
    assert shown() == {("acme/echo", "starting"): 1, ("acme/echo", "ready"): 1}
    metrics.count([replica("a"), replica("b")])
    assert shown() == {("acme/echo", "ready"): 2}
    metrics.forget("acme/echo")
    assert shown() == {}
    metrics.count([replica("a"), replica("b")])
    assert shown() == {("acme/echo", "ready"): 2}, "it has come back under its name"
    metrics.count([])
    assert shown() == {}
