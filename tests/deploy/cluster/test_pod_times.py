"""The times of a pod by one clock, and its phases between them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hotplate.deploy.cluster.pod_spec import PodReport
from hotplate.deploy.cluster.pod_times import PodTimes, times_of
from hotplate.deploy.phases import Phase

CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
REPORT = PodReport(
    (Phase("process", 0.2, 1.5), Phase("init", 1.5, 6.0), Phase("weights", 2.0, 4.0))
)
HOUR_S = 3600


def at(second: float) -> str:
    return datetime.fromtimestamp(CREATED_AT + second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready_pod(ahead_s: float = 0.0, **container: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pod that was made, given a node after 2 s, started after 5 and ready after 12; and its
    container. The clock of its node is ahead."""
    running = {"state": {"running": {"startedAt": at(5 + ahead_s)}}, "ready": True}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(12 + ahead_s)}
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(2)}
    written = [
        {"manager": "kube-controller-manager", "time": at(0)},
        {"manager": "kubelet", "subresource": "status", "time": at(12)},
    ]
    pod = {
        "metadata": {"creationTimestamp": at(0), "managedFields": written},
        "status": {"startTime": at(2 + ahead_s), "conditions": [placed, ready]},
    }
    return pod, {**running, **container}


def seconds_of(phases: tuple[Phase, ...]) -> dict[str, tuple[float, float]]:
    return {each.name: (each.start - CREATED_AT, (each.end or 0.0) - CREATED_AT) for each in phases}


@pytest.mark.parametrize("ahead_s", [0, HOUR_S, -HOUR_S, 86400, -86400])
def test_a_nodes_clock_may_be_hours_off(ahead_s: float) -> None:
    times = times_of(*ready_pod(ahead_s))
    assert times.ready_at == CREATED_AT + 12
    phases = times.phases(REPORT)
    found = seconds_of(phases)
    assert found["instance"] == (0.0, 2.0)
    assert found["environment"] == (2.0, 5.0)
    assert found["process"] == (5.0, 6.5)
    assert found["init"] == (6.5, 12.0)
    assert found["weights"] == (7.0, 9.0)
    assert sum(each.share_s for each in phases) == pytest.approx(12.0, rel=0.05)


def test_what_the_program_says_lies_before_it_was_ready_whatever_whole_seconds_leave() -> None:
    told = PodReport((Phase("process", 0.2, 1.5), Phase("init", 1.5, 7.6)))
    found = seconds_of(times_of(*ready_pod()).phases(told))
    assert found["environment"] == pytest.approx((2.0, 4.4))
    assert found["init"] == pytest.approx((5.9, 12.0))


def test_a_program_that_lies_moves_nothing_else() -> None:
    told = PodReport((Phase("process", 0.0, 1e6), Phase("init", 1e6, 2e6)))
    times = times_of(*ready_pod())
    phases = times.phases(told)
    assert seconds_of(phases)["instance"] == (0.0, 2.0)
    assert all(each.start <= (each.end or 0.0) <= CREATED_AT + 12 for each in phases)
    assert sum(each.share_s for each in phases) == pytest.approx(12.0)


def test_without_a_word_of_the_program_all_of_its_time_is_its_start() -> None:
    found = seconds_of(times_of(*ready_pod()).phases())
    assert found["process"] == (5.0, 5.0)
    assert found["init"] == (5.0, 12.0)


def test_a_container_that_has_started_again_is_as_old_as_that() -> None:
    times = times_of(*ready_pod(restartCount=2))
    assert (times.created_at, times.ready_at) == (CREATED_AT + 5, CREATED_AT + 12)
    assert sum(each.share_s for each in times.phases(REPORT)) == pytest.approx(7.0)


def test_one_that_was_ready_and_is_not_now_has_been() -> None:
    pod, container = ready_pod(ready=False, started=True)
    assert times_of(pod, container).ready_at is not None
    pod, container = ready_pod(ready=False, started=False)
    assert times_of(pod, container).ready_at is None


def test_times_are_as_close_as_whoever_saw_them_and_stay_in_order() -> None:
    named = PodTimes(10.0, 10.0, 12.0, 12.0)
    seen = PodTimes(10.4, 10.5, 12.9, 12.7)
    assert named.sharpened(seen) == PodTimes(10.4, 10.5, 12.9, 12.9)
    assert PodTimes(10.0, 10.0).sharpened(PodTimes(10.4, 10.5)) == PodTimes(10.4, 10.5)
    assert named.sharpened(PodTimes(5.0, 5.0, 5.0, 5.0)) == named
    assert named.sharpened(PodTimes(99.0, 99.0, 99.0, 99.0)) == PodTimes(11.0, 11.0, 13.0, 13.0)


def test_what_was_seen_first_is_kept() -> None:
    first = PodTimes(10.0).seen(10.4)
    assert first == PodTimes(10.4)
    later = PodTimes(10.0, 11.0).seen(11.5, first)
    assert later == PodTimes(10.4, 11.5)
    assert PodTimes(10.0, 11.0, 12.0, 14.0).seen(14.2, later) == PodTimes(10.4, 11.5, 14.2, 14.2)
