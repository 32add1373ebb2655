"""From wishes and replicas to what is to be done."""

from __future__ import annotations

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.plan import Member, make_plan
from hotplate.deploy.workload import WorkloadKey

S = ReplicaState
A = WorkloadKey("acme", "a", 1, "A")
B = WorkloadKey("acme", "b", 1, "B")


def member(name: str, state: ReplicaState, created_at: float = 0.0) -> Member:
    return Member(name, A, state, created_at)


def test_missing_replicas_are_made_and_those_being_stopped_do_not_count() -> None:
    plan = make_plan({A: 3}, [member("x", S.READY), member("y", S.STOPPING)], expected={A})
    assert plan.create == {A: 2}
    assert plan.stop == {}


def test_a_failed_replica_is_not_replaced() -> None:
    assert make_plan({A: 1}, [member("x", S.FAILED)], expected={A}).create == {}


def test_those_that_serve_nobody_go_first_then_the_youngest() -> None:
    members = [
        member("old", S.READY, 1),
        member("young", S.READY, 2),
        member("starting", S.STARTING),
        member("pending", S.PENDING),
        member("failed", S.FAILED),
        member("unready", S.UNREADY),
        member("pausing", S.BACKOFF),
    ]
    order = ["failed", "pending", "pausing", "starting", "unready", "young", "old"]
    for count in range(len(members)):
        stopped = make_plan({A: count}, members, expected={A}).stop
        assert list(stopped) == order[: len(members) - count]


def test_what_is_not_expected_is_stopped_once_it_is_said_what_is() -> None:
    members = [member("x", S.READY)]
    assert make_plan({B: 0}, members, expected=None).stop == {}
    assert make_plan({B: 0}, members, expected={A, B}).stop == {}
    assert make_plan({B: 0}, members, expected={B}).stop == {"x": "it is no longer wanted"}


def test_a_fulfilled_wish_needs_nothing() -> None:
    plan = make_plan({A: 1}, [member("x", S.READY)], expected={A})
    assert (plan.create, plan.stop) == ({}, {})
