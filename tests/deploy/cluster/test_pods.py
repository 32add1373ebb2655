"""What is read from a pod: its state with a sentence, its times, what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.deploy.cluster.pods import is_over, nodes, refusal, replica_of, told_of
from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.workload import Resources
from hotplate.platform.controller.planning.plan import START_ATTEMPTS, ended_attempts

S = ReplicaState
KEY = "acme/hello@1/Hello"
PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:12Z"}
UNREADY = {**READY, "status": "False"}
NOT_YET = {**UNREADY, "lastTransitionTime": "2026-01-01T00:00:02Z"}
"""As the kubelet says it of a pod that it has just heard of."""
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:05Z"}}
CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


def pod(
    *conditions: dict[str, str], state: dict[str, Any] | None = None, **container: Any
) -> dict[str, Any]:
    own = {"name": "replica", "image": "runtime:1", "restartCount": 0, **container}
    return {
        "metadata": {
            "name": "h-hello-1-hello-abc",
            "uid": "u1",
            "namespace": "hotplate-t-acme",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"hotplate.dev/workload": KEY},
        },
        "spec": {
            "nodeName": "node1" if conditions else "",
            "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}],
        },
        "status": {
            "podIP": "10.0.0.7",
            "conditions": list(conditions),
            "containerStatuses": [own if state is None else {**own, "state": state}],
        },
    }


def ended(**said: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": 1, "reason": "Error", **said}}


@pytest.mark.parametrize(
    ("seen", "state", "reason"),
    [
        (pod(), S.STARTING, "waits for the scheduler"),
        (
            pod({**PLACED, "status": "False", "message": "0/2 nodes: Insufficient cpu."}),
            S.PENDING,
            "No node takes it: 0/2 nodes: Insufficient cpu.",
        ),
        (pod(PLACED, state={"waiting": {"reason": "ContainerCreating"}}), S.STARTING, "prepares"),
        (
            pod(PLACED, state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            S.STARTING,
            "The image runtime:1 is not there: not found",
        ),
        (pod(PLACED, state=RUNNING), S.STARTING, "is not ready yet"),
        (pod(PLACED, READY, state=RUNNING, ready=True, started=True), S.READY, ""),
        (pod(PLACED, UNREADY, state=RUNNING, started=True), S.UNREADY, "readiness check fails"),
        (pod(PLACED, NOT_YET, state=RUNNING, started=True), S.STARTING, "is not ready yet"),
        (
            pod(PLACED, state=CRASHED, restartCount=2, lastState=ended(exitCode=3)),
            S.BACKOFF,
            "It ended with exit status 3.",
        ),
        (pod(PLACED, state=ended(signal=9)), S.BACKOFF, "It was ended by signal 9."),
        (
            pod(PLACED, state=CRASHED, lastState=ended(reason="OOMKilled")),
            S.BACKOFF,
            "It used more memory than it asked for",
        ),
    ],
)
def test_a_state_has_a_sentence(seen: dict[str, Any], state: ReplicaState, reason: str) -> None:
    replica = replica_of(seen)
    assert replica is not None
    assert replica.state is state
    assert reason in replica.reason


def test_a_pod_that_somebody_deletes_is_stopping() -> None:
    seen = pod(PLACED, READY, state=RUNNING, ready=True, started=True)
    seen["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    replica = replica_of(seen)
    assert replica is not None and replica.state is S.STOPPING


def test_a_pod_that_was_evicted_has_ended() -> None:
    seen = pod(PLACED)
    seen["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on …"}
    replica = replica_of(seen)
    assert replica is not None and is_over(seen)
    assert (replica.state, replica.reason) == (S.STOPPING, "The node was low on …")


def test_one_that_crashed_has_its_last_lines_and_its_restarts() -> None:
    last = ended(message="first\nit is broken\n")
    replica = replica_of(pod(PLACED, state=CRASHED, restartCount=2, lastState=last))
    assert replica is not None
    assert (replica.restarts, replica.log_tail) == (2, ("first", "it is broken"))
    assert replica.reason == "It ended with exit status 1; its log ends with: it is broken"


def test_three_ends_before_it_was_ready_are_as_many_attempts_as_a_roll_out_has() -> None:
    replica = replica_of(pod(PLACED, state=CRASHED, restartCount=2, lastState=ended(exitCode=3)))
    assert replica is not None and replica.ready_at is None
    assert ended_attempts(replica) == START_ATTEMPTS


def test_one_that_was_ended_because_it_was_late_says_so() -> None:
    times = {"startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:00:36Z"}
    seen = pod(PLACED, state=RUNNING, restartCount=1, lastState=ended(exitCode=143, **times))
    seen["spec"]["containers"][0]["startupProbe"] = {"failureThreshold": 30}
    replica = replica_of(seen)
    assert replica is not None and replica.state is S.STARTING
    assert "not ready within its cold_start_timeout of 30 s" in replica.reason
    seen["spec"]["containers"][0]["startupProbe"] = {"failureThreshold": 40}
    replica = replica_of(seen)
    assert replica is not None and "exit status 143" in replica.reason


def test_one_that_ends_after_it_was_ready_may_have_requests() -> None:
    seen = pod(PLACED, READY, state=RUNNING, ready=True, started=True)
    seen["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    replica = replica_of(seen)
    assert replica is not None and replica.leaves


def test_what_a_node_has_warned_of_last_is_the_reason() -> None:
    old, new = (
        {
            "involvedObject": {"uid": "u1"},
            "type": "Warning",
            "message": f"MountVolume failed: {word}",
            "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
        }
        for number, word in enumerate(("first", "last"))
    )
    events = told_of([new, old])["u1"]
    replica = replica_of(pod(PLACED, state={"waiting": {"reason": "ContainerCreating"}}), events)
    assert replica is not None and replica.reason == "MountVolume failed: last"


def test_phases_follow_each_other_and_their_shares_add_up() -> None:
    replica = replica_of(pod(PLACED, READY, state=RUNNING, ready=True, started=True))
    assert replica is not None and replica.address == "10.0.0.7:3000"
    assert [phase.name for phase in replica.phases if phase.share_s] == [
        "instance",
        "environment",
        "init",
    ]
    assert replica.cold_start_s == 12.0
    assert sum(phase.share_s for phase in replica.phases) == pytest.approx(12.0)


def test_clocks_that_differ_make_no_phase_negative() -> None:
    ahead = {"running": {"startedAt": "2026-01-01T01:00:05Z"}}
    replica = replica_of(pod(PLACED, READY, state=ahead, ready=True, started=True))
    assert replica is not None and replica.ready_at is not None
    assert all(phase.start <= (phase.end or 0.0) <= replica.ready_at for phase in replica.phases)
    assert sum(phase.share_s for phase in replica.phases) == pytest.approx(12.0)


def test_what_is_asked_for_counts_and_memory_without_a_limit_does_not() -> None:
    seen = pod(PLACED)
    assert replica_of(seen).resources == Resources(0.5, 0, 0)  # type: ignore[union-attr]
    seen["spec"]["containers"][0]["resources"]["limits"] = {"memory": "512Mi"}
    assert replica_of(seen).resources == Resources(0.5, 512 << 20, 0)  # type: ignore[union-attr]


def test_a_node_has_what_can_be_promised_and_what_ours_hold() -> None:
    given = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    found = {"metadata": {"name": "node1"}, "status": {"allocatable": given}}
    node = nodes([found], [pod(PLACED), pod(PLACED)])["node1"]
    assert node.in_all == Resources(2, 4 << 30, 1)
    assert node.taken.cpus == 1.0


def test_what_the_cluster_refuses_is_said_in_its_words() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
    assert "exceeded quota: q" in refusal({"status": {"conditions": [failure]}})
    assert refusal({"status": {}}) == ""


def test_a_pod_that_is_nobodys_is_no_replica() -> None:
    seen = pod(PLACED)
    del seen["metadata"]["annotations"]
    assert replica_of(seen) is None
