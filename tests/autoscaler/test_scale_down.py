"""When replicas are let go, and what keeps them."""

from __future__ import annotations

import json

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Behavior, Cause, Demand, Policy, Replicas
from tests.autoscaler.deciding import IDLE, ONE, after, asleep, idle_since


@pytest.mark.parametrize(
    "policy, window_s",
    [
        (Policy(0, 3, scale_down_window_s=10), 10),
        (Policy(0, 3, scale_down_behavior=Behavior.STABLE), 600),
        (Policy(0, 3, scale_down_behavior=Behavior.FAST, scale_down_window_s=10), 10),
    ],
    ids=["window", "stable", "fast and window"],
)
def test_the_written_window_holds_for_the_last_replica_too(policy: Policy, window_s: int) -> None:
    decider = idle_since(policy, at=100.0)
    before = decider.decide(Replicas(1), 99.9 + window_s)
    assert (before.desired, before.cause, before.next_at) == (1, Cause.KEPT, 100.0 + window_s)
    assert decider.decide(Replicas(1), 100.0 + window_s).desired == 0


def test_a_kept_replica_says_for_how_long_and_by_which_field() -> None:
    decider = idle_since(Policy(0, 1, scale_down_window_s=30), at=100.0)
    assert decider.decide(Replicas(1), 108.0).reason == (
        "1 of 1: idle for 8 s, kept until 30 s (scale_down_stabilization_window)"
    )
    assert decider.decide(Replicas(1), 131.0).reason == (
        "1 of 0: no demand; replica 1 idle for 31 s, kept for 30 s "
        "(scale_down_stabilization_window)"
    )


@pytest.mark.parametrize(
    "policy",
    [Policy(0, 3, scale_down_window_s=0), Policy(0, 3, scale_down_behavior=Behavior.FAST)],
    ids=["window 0", "fast"],
)
def test_no_window_lets_the_last_replica_go_at_once(policy: Policy) -> None:
    decider = asleep(policy)
    after(decider, ONE, 1, 10.0)
    assert after(decider, IDLE, 1, 11.0).desired == 0


def test_disabled_down_keeps_what_there_is() -> None:
    decider = idle_since(Policy(0, 3, scale_down_behavior=Behavior.DISABLED), 100.0, ready=3)
    decision = decider.decide(Replicas(3), 1e6)
    assert (decision.desired, decision.next_at) == (3, None)
    assert decision.reason.endswith("kept (scale_down_behavior disabled)")


def test_a_request_between_two_decisions_is_seen() -> None:
    decider = idle_since(Policy(0, 1, scale_down_window_s=30), at=100.0)
    decider.observe(ONE, 120.0)
    decider.observe(IDLE, 120.1)
    assert decider.decide(Replicas(1), 131.0).desired == 1
    assert decider.decide(Replicas(1), 150.1).desired == 0


def test_requests_that_overlapped_between_two_reports_keep_the_replica_that_they_needed() -> None:
    decider = idle_since(Policy(0, 2, scale_down_window_s=30), at=100.0, ready=2)
    decider.observe(ONE, 120.0, peak=2)
    assert decider.decide(Replicas(2), 149.9).desired == 2
    assert decider.decide(Replicas(2), 150.0).desired == 1


def test_each_replica_is_kept_for_its_own_level_of_demand() -> None:
    decider = asleep(Policy(0, 3, scale_down_window_s=10))
    counts = []
    for now, in_flight in ((10.0, 3), (20.0, 2), (25.0, 1), (29.9, 1), (30.0, 0), (34.9, 0)):
        counts.append(after(decider, Demand(in_flight, service_s=1.0), 3, now).desired)
    counts += [decider.decide(Replicas(3), now).desired for now in (35.0, 39.9, 40.0)]
    assert counts == [3, 3, 3, 3, 2, 2, 1, 1, 0]


def test_a_start_is_kept_like_demand_and_not_cancelled_at_once() -> None:
    decider = asleep(Policy(0, 9, scale_down_window_s=20))
    decider.observe(Demand(in_flight=1, queued=3, service_s=60.0), 100.0)
    assert decider.decide(Replicas(1), 100.0).desired == 4
    decider.observe(Demand(in_flight=1, service_s=60.0), 101.0)
    assert decider.decide(Replicas(1, (100.0,) * 3), 101.0).desired == 4
    assert decider.decide(Replicas(1, (100.0,) * 3), 121.0).desired == 1


def test_a_decision_stands_while_the_engine_has_yet_to_carry_it_out() -> None:
    decider = asleep(Policy(0, 9, scale_down_window_s=20))
    assert after(decider, Demand(1, 3, service_s=60.0), 1, 100.0).desired == 4
    assert after(decider, Demand(1, service_s=60.0), 1, 101.0).desired == 4


def test_an_idle_time_whose_begin_was_not_seen_teaches_nothing() -> None:
    decider = Decider(Policy(0, 1), now=0.0)
    after(decider, IDLE, 1, 0.0)
    after(decider, ONE, 1, 50.0)
    assert decider.memory(50.0)["keep_alive"] == {}
    after(decider, IDLE, 1, 51.0)
    after(decider, ONE, 1, 71.0)
    assert sum(decider.memory(71.0)["keep_alive"]["1"]) == 1.0


def test_the_keep_alive_learns_from_gaps_and_outlives_the_decider() -> None:
    policy = Policy(0, 1, price_gpu_s=600.0)
    decider, now = asleep(policy), 0.0
    for _ in range(30):
        now += 310.0
        after(decider, ONE, 1, now)
        after(decider, IDLE, 1, now + 10.0)
    assert decider.decide(Replicas(1), now + 10.0 + 300.0).desired == 1

    memory = json.loads(json.dumps(decider.memory(now + 20.0)))
    heir = Decider(policy, now=1.0, memory=memory)
    assert heir.cold_start_s == 4.0
    after(heir, ONE, 1, 2.0)
    assert after(heir, IDLE, 1, 3.0).next_at == pytest.approx(3.0 + 362.0, abs=0.1)
    stranger = asleep(policy)
    after(stranger, ONE, 1, 2.0)
    assert after(stranger, IDLE, 1, 3.0).next_at == pytest.approx(3.0 + 90.5, abs=0.1)


@pytest.mark.parametrize("ready", [0, 1])
def test_a_replica_that_was_never_made_is_not_kept(ready: int) -> None:
    """For want of room, or of quota: made later it would start for callers who have left."""
    decider = asleep(Policy(0, 5, 1))
    assert after(decider, Demand(ready, 3, service_s=60.0), ready, 1.0).desired > ready
    decision = after(decider, IDLE, ready, 10.0)
    assert decision.desired == ready
    assert "kept until" in decision.reason if ready else decision.reason == "0 of 0: no demand"
