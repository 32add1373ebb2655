from __future__ import annotations

from dataclasses import replace

import pytest

from hotplate.autoscaler.sharing.allocation import Allocation
from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.platform.controller.planning.plan import START_ATTEMPTS, plan, running_counts
from hotplate.platform.store.records import DesiredState, RolloutOutcome
from tests.support.control_plane.situations import (
    NOW,
    deployment,
    key,
    observed,
    replica,
    revision,
    service,
)

NEW = revision(1, RolloutOutcome.DEPLOYING)
OLD = revision(1)
NEXT = revision(2, RolloutOutcome.DEPLOYING)


def test_a_new_revision_starts_one_replica_even_if_it_may_sleep_at_zero() -> None:
    step = plan(observed(deployment(NEW, None)))
    assert [(s.key, s.count) for s in step.scales] == [(key(1), 1)]
    assert step.status == "deploying"
    assert step.verdict is None


def test_a_revision_stands_when_its_replica_answers() -> None:
    step = plan(observed(deployment(NEW, None), replica("a")))
    assert step.verdict is not None
    assert step.verdict.outcome is RolloutOutcome.READY
    assert step.status in ("running", "scaled-to-zero")


def test_a_rollout_keeps_the_old_revision_until_the_new_one_answers() -> None:
    coming = replica("b", 2, ReplicaState.STARTING)
    step = plan(
        observed(deployment(NEXT, OLD), replica("a"), coming, desired={key(1): 1}),
    )
    assert {(s.key.revision, s.count) for s in step.scales} == {(1, 1), (2, 1)}
    assert step.draining == frozenset()
    assert step.status == "deploying"


def test_after_the_switch_the_old_replicas_drain_before_they_are_removed() -> None:
    of = deployment(revision(2), revision(2))
    old, new = replica("a", 1), replica("b", 2)
    first = plan(observed(of, old, new, desired={key(2): 1}))
    assert first.draining == {"a"}
    assert [s.remove for s in first.scales if s.key == key(1)] == [frozenset()]
    told = observed(of, old, new, desired={key(2): 1}, draining=first.draining)
    second = plan(replace(told, idle=frozenset({"a"})))
    assert [(s.count, s.remove) for s in second.scales if s.key == key(1)] == [
        (0, frozenset({"a"}))
    ]


def test_a_rollout_is_as_large_as_what_serves() -> None:
    step = plan(observed(deployment(NEXT, OLD), replica("a"), desired={key(1): 3}))
    assert {(s.key.revision, s.count) for s in step.scales} == {(1, 3), (2, 3)}


def test_a_rollout_goes_on_with_fewer_replicas_when_no_more_fit() -> None:
    ready, waiting = replica("b", 2), replica("c", 2, ReplicaState.PENDING, reason="no room")
    step = plan(observed(deployment(NEXT, OLD), replica("a"), ready, waiting, desired={key(1): 2}))
    assert step.verdict is not None
    assert step.verdict.outcome is RolloutOutcome.READY


@pytest.mark.parametrize(
    "broken",
    [
        replica("b", 2, ReplicaState.FAILED, reason="no such package"),
        replica(
            "b", 2, ReplicaState.BACKOFF, restarts=START_ATTEMPTS - 1, reason="no such package"
        ),
        replica(
            "b",
            2,
            ReplicaState.BACKOFF,
            restarts=1,
            created_at=NOW - 2000,
            reason="no such package",
        ),
    ],
    ids=["cannot be tried again", "crashes again and again", "too late"],
)
def test_a_revision_that_cannot_start_fails_with_its_reason_and_the_old_one_goes_on(
    broken: Replica,
) -> None:
    broken = replace(broken, log_tail=("Traceback", "ImportError"))
    step = plan(observed(deployment(NEXT, OLD), replica("a"), broken, desired={key(1): 1}))
    assert step.verdict is not None
    assert step.verdict.outcome is RolloutOutcome.FAILED
    assert "no such package" in step.verdict.reason
    assert step.verdict.log_tail == ("Traceback", "ImportError")
    assert step.status == "failed"
    assert "revision 1 keeps serving" in step.reason
    assert {(s.key.revision, s.count) for s in step.scales} == {(1, 1), (2, 0)}


@pytest.mark.parametrize(("busy", "left"), [(1, 1), (0, 0)], ids=["it may call", "it calls nobody"])
def test_what_one_that_is_ended_without_us_calls_stays_until_its_requests_have_ended(
    busy: int, left: int
) -> None:
    chain = (service(1, dependencies=("Inner",)), service(1, "Inner"))
    ended = replica("a", 1, ReplicaState.STOPPING, ready_at=NOW - 1, address="a:1")
    inner = replace(replica("b"), key=key(1, "Inner"))
    of = deployment(revision(1), revision(1))
    told = observed(of, ended, inner, services={1: chain}, busy={"a": busy} if busy else {})
    step = plan(replace(told, draining=frozenset({"b"}), idle=frozenset({"b"})))
    assert {s.key.service: s.count for s in step.scales} == {"Echo": 0, "Inner": left}


def test_a_revision_fails_by_what_its_entry_service_calls_and_says_so() -> None:
    chain = (
        service(1, dependencies=("Middle",)),
        service(1, "Middle", ("Last",)),
        service(1, "Last"),
    )
    ready = [replace(replica(name), key=key(1, name)) for name in ("Echo", "Middle")]
    given_up = replica("c", 1, ReplicaState.BACKOFF, reason="no licence", restarts=2)
    failing = replace(given_up, key=key(1, "Last"))
    of = deployment(NEW, None)
    step = plan(observed(of, *ready, failing, services={1: chain}))
    assert step.verdict is not None
    assert step.verdict.outcome is RolloutOutcome.FAILED
    assert "service 'Last' cannot start: no licence" in step.verdict.reason
    assert "service 'Last' cannot start: no licence" in step.reason
    waiting = plan(observed(of, *ready, replace(failing, restarts=0), services={1: chain}))
    assert waiting.verdict is None
    assert "service 'Last': no licence" in waiting.reason


def test_a_crash_is_not_a_failure_while_attempts_are_left() -> None:
    crashed = replica("a", 1, ReplicaState.BACKOFF, restarts=0, reason="exited with code 1")
    step = plan(observed(deployment(NEW, None), crashed))
    assert step.verdict is None
    assert (step.status, step.reason) == (
        "deploying",
        "service 'Echo': exited with code 1; it is started again after a pause",
    )


def test_a_new_revision_takes_over_what_the_one_before_it_has() -> None:
    alone = observed(deployment(NEW, None), replica("a"))
    assert running_counts(alone, {key(1): 2}) == {key(1): 1}
    taking = observed(deployment(NEXT, OLD), replica("a"), replica("b"))
    assert running_counts(taking, {key(1): 2, key(2): 1}) == {key(1): 1, key(2): 1}
    assert running_counts(taking, {key(1): 2, key(2): 3}) == {key(1): 0, key(2): 2}
    coming = replica("c", 2)
    taking = observed(deployment(NEXT, OLD), replica("a"), coming)
    assert running_counts(taking, {key(1): 1, key(2): 1}) == {key(1): 1, key(2): 1}


def test_what_does_not_fit_stays_deploying_and_says_why() -> None:
    waiting = replica("a", 1, ReplicaState.PENDING, reason="needs 1 GPU: this machine has 0")
    step = plan(observed(deployment(NEW, None), waiting))
    assert step.status == "deploying"
    assert "needs 1 GPU" in step.reason


def test_without_replicas_or_wishes_it_sleeps() -> None:
    step = plan(observed(deployment(OLD, OLD)))
    assert step.status == "scaled-to-zero"


def test_what_queries_turn_off_does_not_sleep_for_want_of_requests() -> None:
    labels = ({"key": "autoscaling/enabled", "value": "true"},)
    step = plan(observed(deployment(OLD, OLD, labels=labels)))
    assert (step.status, step.reason) == ("scaled-to-zero", "its queries keep it off")


def test_the_status_says_which_service_of_a_chain_is_waited_for() -> None:
    pair = {1: (service(1, dependencies=("Back",)), service(1, "Back"))}
    front = replica("a")
    back = replace(replica("b", 1, ReplicaState.STARTING, reason="it loads"), key=key(1, "Back"))
    of = deployment(OLD, OLD)
    step = plan(observed(of, front, back, services=pair, desired={key(1): 1}))
    assert (step.status, step.reason) == ("scaled-to-zero", "service 'Back': it loads")


def test_waking_is_not_unhealthy() -> None:
    step = plan(
        observed(
            deployment(OLD, OLD), replica("a", state=ReplicaState.STARTING), desired={key(1): 1}
        )
    )
    assert step.status == "scaled-to-zero"
    assert "waking" in step.reason


def test_a_revision_that_stood_and_crashes_is_unhealthy() -> None:
    crashed = replica("a", 1, ReplicaState.BACKOFF, restarts=1, reason="killed by signal 9")
    step = plan(observed(deployment(OLD, OLD), crashed, desired={key(1): 1}))
    assert step.status == "unhealthy"
    assert "killed by signal 9" in step.reason


def test_a_service_that_others_call_is_up_whenever_they_are() -> None:
    of = deployment(OLD, OLD)
    services = {1: (service(1, dependencies=("Tokenizer",)), service(1, "Tokenizer"))}
    step = plan(observed(of, services=services, desired={key(1): 2}))
    assert {(s.key.service, s.count) for s in step.scales} == {("Echo", 2), ("Tokenizer", 1)}


def test_scaling_down_ends_what_does_not_answer_first_and_then_the_youngest() -> None:
    of = deployment(OLD, OLD)
    eldest = replica("a", created_at=NOW - 30)
    youngest = replica("b", created_at=NOW - 10)
    starting = replica("c", state=ReplicaState.STARTING, created_at=NOW - 50)
    step = plan(observed(of, eldest, youngest, starting, desired={key(1): 1}))
    assert [(s.count, s.remove) for s in step.scales] == [(2, frozenset({"c"}))]
    assert step.draining == {"b"}


def test_scaling_down_takes_who_has_nothing_to_do_also_in_place_of_a_busy_one_that_drains() -> None:
    of = deployment(OLD, OLD)
    replicas = [
        replica(name, created_at=NOW - age) for name, age in (("a", 30), ("b", 20), ("c", 10))
    ]
    some = observed(of, *replicas, desired={key(1): 2})
    assert plan(replace(some, busy={"b": 1, "c": 1})).draining == {"a"}, "the eldest, and idle"
    assert plan(replace(some, busy={"a": 1, "b": 2, "c": 3})).draining == {"a"}, "least to do"
    waits = replace(some, draining=frozenset({"c"}), busy={"a": 2, "b": 2, "c": 3})
    assert plan(waits).draining == {"c"}, "one that drains goes on while all are busy"
    assert plan(replace(waits, busy={"a": 2, "c": 3})).draining == {"b"}
    confirmed = replace(waits, busy={"a": 2}, idle=frozenset({"c"}))
    assert [scale.remove for scale in plan(confirmed).scales] == [{"c"}], "not another idle one"


def test_a_draining_replica_is_kept_when_demand_returns() -> None:
    of = deployment(OLD, OLD)
    both = (replica("a"), replica("b"))
    step = plan(observed(of, *both, desired={key(1): 2}, draining=frozenset({"b"})))
    assert step.draining == frozenset()
    assert [(s.count, s.remove) for s in step.scales] == [(2, frozenset())]


@pytest.mark.parametrize("wanted", [DesiredState.TERMINATED, DesiredState.DELETED])
def test_tearing_down_drains_then_removes_then_ends(wanted: DesiredState) -> None:
    of = deployment(OLD, OLD, wanted=wanted)
    first = plan(observed(of, replica("a")))
    assert (first.status, first.draining, first.is_gone) == ("terminating", frozenset({"a"}), False)
    last = plan(observed(of))
    assert (last.status, last.is_gone) == ("terminated", wanted is DesiredState.DELETED)


def test_a_plan_that_was_applied_is_followed_by_one_that_changes_nothing() -> None:
    of = deployment(OLD, OLD)
    running = observed(of, replica("a"), desired={key(1): 1})
    first, second = plan(running), plan(running)
    assert first == second
    assert [(s.count, s.remove) for s in first.scales] == [(1, frozenset())]


def test_what_a_draining_replica_calls_goes_after_it() -> None:
    pair = {n: (service(n, dependencies=("Back",)), service(n, "Back")) for n in (1, 2)}
    front, back = replica("front"), replace(replica("back"), key=key(1, "Back"))
    of = deployment(revision(2), revision(2))
    busy = observed(of, front, back, services=pair, draining=frozenset({"front"}))
    step = plan(busy)
    assert step.draining == {"front"}
    assert not any(scale.remove for scale in step.scales)
    alone = observed(of, back, services=pair)
    assert plan(alone).draining == {"back"}
    assert plan(observed(of, services=pair)).draining == frozenset()


def test_what_is_deleted_ends_from_the_outside_to_the_inside() -> None:
    pair = {1: (service(1, dependencies=("Back",)), service(1, "Back"))}
    of = deployment(revision(1), revision(1), wanted=DesiredState.DELETED)
    front, back = replica("front"), replace(replica("back"), key=key(1, "Back"))
    assert plan(observed(of, front, back, services=pair)).draining == {"front"}
    assert plan(observed(of, back, services=pair)).draining == {"back"}


def test_a_scale_up_that_does_not_fit_is_said_beside_what_serves() -> None:
    waiting = replica("b", 1, ReplicaState.PENDING, reason="needs 2.0 CPUs: 2.0 of 2.0 are taken")
    of = deployment(OLD, OLD)
    step = plan(observed(of, replica("a"), waiting, desired={key(1): 2}))
    said = "1 replica ready; 1 replica waits for room: needs 2.0 CPUs: 2.0 of 2.0 are taken"
    assert (step.status, step.reason) == ("running", said)
    assert {scale.count for scale in step.scales} == {2}


@pytest.mark.parametrize(
    ("ready", "waiting", "allocated", "is_ready"),
    [
        (0, 0, None, False),
        (0, 3, None, False),
        (1, 0, None, False),
        (1, 1, None, False),
        (1, 2, None, True),
        (2, 1, None, True),
        (2, 0, None, False),
        (3, 0, None, True),
        (1, 0, 1, True),
        (1, 0, 2, False),
    ],
)
def test_a_roll_out_ends_once_all_that_have_room_are_ready(
    ready: int, waiting: int, allocated: int | None, is_ready: bool
) -> None:
    replicas = [replica(f"r{n}", 2) for n in range(ready)]
    replicas += [replica(f"w{n}", 2, ReplicaState.PENDING) for n in range(waiting)]
    allocations = {} if allocated is None else {key(2): Allocation(allocated, "quota")}
    now = observed(deployment(NEXT, OLD), *replicas, desired={key(1): 3}, allocations=allocations)
    verdict = plan(now).verdict
    assert (verdict is not None and verdict.outcome is RolloutOutcome.READY) is is_ready


@pytest.mark.parametrize(
    ("restarts", "state", "age_s", "fails"),
    [
        (START_ATTEMPTS - 2, ReplicaState.BACKOFF, 10, False),
        (START_ATTEMPTS - 1, ReplicaState.STARTING, 10, False),
        (START_ATTEMPTS, ReplicaState.STARTING, 10, True),
        (0, ReplicaState.STARTING, 10_000, False),
        (1, ReplicaState.STARTING, 10_000, True),
    ],
)
def test_a_start_fails_after_its_attempts_or_its_time(
    restarts: int, state: ReplicaState, age_s: float, fails: bool
) -> None:
    starting = replica("a", 1, state, restarts=restarts, created_at=NOW - age_s, reason="exited")
    verdict = plan(observed(deployment(NEW, None), starting)).verdict
    assert (verdict is not None) is fails
    if verdict is not None:
        attempts = restarts + (state is ReplicaState.BACKOFF)
        assert verdict.reason == f"service 'Echo' cannot start: exited (attempt {attempts})"


@pytest.mark.parametrize("unbuilt", [True, False])
def test_a_revision_that_cannot_be_built_says_that_it_was_the_build(unbuilt: bool) -> None:
    ended = replica("a", 1, ReplicaState.FAILED, reason="no such package", unbuilt=unbuilt)
    verdict = plan(observed(deployment(NEW, None), ended)).verdict
    assert verdict is not None
    assert verdict.unbuilt is unbuilt


def test_a_start_has_exactly_its_time() -> None:
    limit_s = service(1).workload.cold_start_timeout_s
    for age_s, fails in ((limit_s, False), (limit_s + 1, True)):
        starting = replica("a", 1, ReplicaState.STARTING, restarts=1, created_at=NOW - age_s)
        assert (plan(observed(deployment(NEW, None), starting)).verdict is not None) is fails


def test_a_replica_that_was_ready_does_not_fail_its_revision() -> None:
    crashed = replica("a", 1, ReplicaState.BACKOFF, restarts=9, ready_at=NOW - 5)
    assert plan(observed(deployment(NEW, None), crashed)).verdict is None


def test_a_revision_that_failed_has_no_replicas() -> None:
    failed = revision(2, RolloutOutcome.FAILED)
    step = plan(observed(deployment(failed, OLD), desired={key(1): 1, key(2): 1}))
    assert step.targets == {key(1): 1, key(2): 0}


def test_a_roll_out_has_as_many_as_its_policy_wants_but_for_what_queries_turn_on() -> None:
    kept = {1: (service(1, least=2),)}
    assert plan(observed(deployment(NEW, None), services=kept)).targets == {key(1): 2}
    labels = ({"key": "autoscaling/enabled", "value": "true"},)
    by_queries = deployment(NEW, None, labels=labels)
    assert plan(observed(by_queries, services=kept)).targets == {key(1): 1}
    most = service(1).policy.max_replicas
    step = plan(observed(deployment(NEXT, OLD), desired={key(1): most + 3}))
    assert step.targets[key(2)] == most


def test_of_what_is_busy_the_least_busy_and_the_youngest_goes_first() -> None:
    old = replica("old", created_at=NOW - 50)
    young = replica("young", created_at=NOW - 5)
    for busy, victim in (
        ({"old": 1, "young": 1}, "young"),
        ({"old": 1, "young": 2}, "old"),
        ({"old": 1}, "young"),
        ({"young": 1}, "old"),
        ({}, "young"),
    ):
        now = observed(deployment(OLD, OLD), old, young, desired={key(1): 1}, busy=busy)
        assert plan(now).draining == {victim}
