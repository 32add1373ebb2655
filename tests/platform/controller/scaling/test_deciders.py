"""Replicas as deciders see them."""

from __future__ import annotations

from dataclasses import replace

from hotplate.autoscaler.policy import Policy, Replicas
from hotplate.deploy.engine import ReplicaState
from hotplate.platform.controller.scaling.deciders import Scaling, counts
from hotplate.serving.gateway.protocol.routes import RouteDemand
from tests.support.control_plane.situations import replica, service

LOOP = 500.0


def test_starts_are_told_by_the_loop_s_clock() -> None:
    replicas = [replica("r1"), replica("r2", state=ReplicaState.STARTING)]
    begun = {"r1": LOOP - 20, "r2": LOOP - 10}
    assert counts(replicas, frozenset(), begun) == Replicas(1, (LOOP - 10,))


def test_a_replica_that_waits_to_be_started_again_counts_as_starting() -> None:
    """One that never becomes ready is tried again, and is not joined by another."""
    replicas = [replica("r1", state=ReplicaState.BACKOFF), replica("r2")]
    seen = counts(replicas, frozenset({"r2"}), {"r1": LOOP})
    assert (seen.ready, seen.live) == (0, 1), "what drains is gone already"


def test_the_peak_of_a_report_counts_once_however_often_it_is_looked_at() -> None:
    scaling, echo = Scaling(), replace(service(1), policy=Policy(1, 5, scale_down_window_s=30))
    report = RouteDemand(in_flight=1, peak=2)
    looked_at = (LOOP, LOOP + 29.0, LOOP + 31.0)
    recommended = [
        scaling.recommend(echo, 1, report, Replicas(2), now, memory=None) for now in looked_at
    ]
    assert [each.decision.desired for each in recommended] == [2, 2, 1]


def test_what_runs_and_does_not_end_is_evidence_however_often_the_report_is_looked_at() -> None:
    """Requests took a second each; one has its slot, and none has ended since."""
    echo = replace(service(1), policy=Policy(1, 5))
    known = {"service_s": 1.0, "cold_starts_s": [60.0]}

    def desired(oldest_at: float | None) -> int:
        scaling = Scaling()
        report = RouteDemand(in_flight=1, queued=3, service_s=1.0, oldest_at=oldest_at)
        looked_at = (LOOP, LOOP + 25.0, LOOP + 50.0)
        return [
            scaling.recommend(echo, 1, report, Replicas(1), now, memory=known) for now in looked_at
        ][-1].decision.desired

    assert desired(LOOP) == 3
    assert desired(None) == 1, "an older gateway does not say so"
