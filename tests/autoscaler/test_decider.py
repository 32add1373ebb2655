from __future__ import annotations

import copy
import json
import random

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Behavior, Cause, Decision, Demand, Policy, Replicas

IDLE = Demand(service_s=1.0)
ONE = Demand(in_flight=1, service_s=1.0)


def asleep(policy: Policy) -> Decider:
    """A decider that knows a cold start of 4 s and sees no replica and no demand at 0 s."""
    decider = Decider(policy, now=0.0)
    decider.ready_after(4.0)
    decider.observe(IDLE, 0.0)
    decider.decide(Replicas(), 0.0)
    return decider


def after(decider: Decider, demand: Demand | None, ready: int, now: float) -> Decision:
    decider.observe(demand, now)
    return decider.decide(Replicas(ready), now)


def idle_since(policy: Policy, at: float, ready: int = 1) -> Decider:
    """A decider whose `ready` replicas were full until `at`."""
    decider = asleep(policy)
    after(decider, Demand(in_flight=ready * policy.concurrency, service_s=1.0), ready, 1.0)
    after(decider, IDLE, ready, at)
    return decider


# From zero


def test_the_first_request_wakes_one_replica_at_once() -> None:
    decision = after(asleep(Policy(0, 3)), Demand(queued=1), 0, 50.0)
    assert decision == Decision(
        1, "0 of 1: 1 request held and no replica", Cause.WAKE, next_at=52.0
    )


def test_a_burst_at_zero_starts_as_many_as_its_queue_justifies() -> None:
    short, long = Demand(queued=4, service_s=1.0), Demand(queued=4, service_s=60.0)
    assert after(asleep(Policy(0, 9)), short, 0, 50.0).desired == 1
    assert after(asleep(Policy(0, 9)), long, 0, 50.0).desired == 4


def test_a_burst_starts_in_steps_of_four_or_double_per_fifteen_seconds() -> None:
    decider, burst = asleep(Policy(0, 50)), Demand(queued=40, service_s=60.0)
    decider.observe(burst, 20.0)
    first = decider.decide(Replicas(), 20.0)
    assert (first.desired, first.cause) == (4, Cause.WAKE)
    assert "40 wanted, at most +100 % or +4 in 15 s" in first.reason
    desired = [
        decider.decide(Replicas(0, (now,) * live), now).desired
        for now, live in [(34.9, 4), (35.0, 4), (49.9, 8), (50.0, 8), (65.0, 16)]
    ]
    assert desired == [4, 8, 8, 16, 32]


@pytest.mark.parametrize(
    "policy",
    [Policy(0, 3, scale_up_window_s=180), Policy(0, 3, scale_up_behavior=Behavior.DISABLED)],
    ids=["window", "disabled"],
)
def test_nothing_holds_back_the_first_replica(policy: Policy) -> None:
    assert after(asleep(policy), Demand(queued=3), 0, 50.0).desired == 1


# Up


def test_one_long_request_at_concurrency_one_needs_one_replica_never_two() -> None:
    decider = asleep(Policy(0, 5))
    decider.observe(Demand(queued=1), 10.0)
    assert decider.decide(Replicas(), 10.0).desired == 1
    for second in range(10, 14):
        assert decider.decide(Replicas(0, (10.0,)), second).desired == 1
    for second in range(14, 600):
        assert after(decider, Demand(in_flight=1), 1, second).desired == 1


def test_requests_that_would_wait_longer_than_a_cold_start_start_replicas() -> None:
    decider = asleep(Policy(1, 9))
    decision = after(decider, Demand(in_flight=1, queued=5, service_s=2.5), 1, 9.0)
    assert decision.desired == 3
    assert decision.reason == (
        "1 of 3: 5 requests held, 3 would wait longer than 1.25 x the 4 s a new replica needs"
    )
    assert decision.cause is Cause.HELD


def test_a_start_on_the_way_is_capacity() -> None:
    decider = asleep(Policy(1, 9))
    decider.observe(Demand(in_flight=1, queued=1, service_s=30.0), 9.0)
    assert decider.decide(Replicas(1), 9.0).desired == 2
    assert decider.decide(Replicas(1, (9.0,)), 9.1).desired == 2


def test_a_queue_behind_an_unusually_long_request_starts_one_after_a_horizon() -> None:
    decider, stuck = asleep(Policy(1, 9)), Demand(in_flight=1, queued=1, service_s=1.0)
    after(decider, stuck, 1, 10.0)
    decisions = [after(decider, stuck, 1, now) for now in (11.0, 12.9, 14.0, 16.0, 18.9, 19.0)]
    assert [decision.desired for decision in decisions] == [1, 1, 1, 1, 1, 2]
    assert (decisions[4].next_at, decisions[5].cause) == (19.0, Cause.DEMAND)


def test_a_short_overlap_of_two_requests_starts_nothing() -> None:
    decider = asleep(Policy(1, 9))
    after(decider, ONE, 1, 10.0)
    after(decider, Demand(in_flight=1, queued=1, service_s=1.0), 1, 12.0)
    assert {after(decider, ONE, 1, 13.0 + t).desired for t in range(20)} == {1}


def test_from_concurrency_four_on_a_fifth_of_the_slots_is_kept_free() -> None:
    full, most = Demand(in_flight=10, service_s=1.0), Demand(in_flight=8, service_s=1.0)
    for demand, desired in ((full, 2), (most, 1)):
        decider = asleep(Policy(1, 9, concurrency=10))
        for second in range(60):
            decision = after(decider, demand, 1, 10.0 + second)
        assert decision.desired == desired


def test_a_backlog_is_not_averaged_while_a_start_is_on_the_way() -> None:
    decider, backlog = asleep(Policy(0, 9, concurrency=8)), Demand(queued=40, service_s=0.1)
    assert after(decider, backlog, 0, 10.0).desired == 1
    for second in range(10, 60):
        decider.observe(backlog, second)
        assert decider.decide(Replicas(0, (10.0,)), second).desired == 1


def test_a_known_service_time_outlives_a_report_without_one() -> None:
    decider = asleep(Policy(1, 9))
    after(decider, Demand(in_flight=1, service_s=0.1), 1, 9.0)
    assert after(decider, Demand(in_flight=1, queued=20), 1, 10.0).desired == 1


# BentoCloud's own words for up


def test_fast_up_is_the_documented_formula_without_a_window() -> None:
    decider = asleep(Policy(1, 9, concurrency=2, scale_up_behavior=Behavior.FAST))
    decision = after(decider, Demand(in_flight=2, queued=5, service_s=0.01), 1, 10.0)
    assert (decision.desired, decision.cause) == (4, Cause.DEMAND)
    assert decision.reason == "1 of 4: 2 requests in flight and 5 held at concurrency 2"


@pytest.mark.parametrize(
    "policy, window_s",
    [
        (Policy(1, 9, scale_up_window_s=30), 30),
        (Policy(1, 9, scale_up_behavior=Behavior.STABLE), 600),
        (Policy(1, 9, scale_up_behavior=Behavior.STABLE, scale_up_window_s=30), 30),
        (Policy(1, 9, scale_up_behavior=Behavior.FAST, scale_up_window_s=30), 30),
    ],
    ids=["window", "stable", "stable and window", "fast and window"],
)
def test_up_takes_the_least_wish_of_the_window(policy: Policy, window_s: float) -> None:
    decider = asleep(policy)
    after(decider, ONE, 1, 1.0)
    two = Demand(in_flight=1, queued=1, service_s=1.0)
    waiting = after(decider, two, 1, 5.0)
    assert (waiting.desired, waiting.next_at) == (1, 5.0 + window_s)
    assert "2 wanted, 1 until more were wanted for" in waiting.reason
    assert after(decider, two, 1, 4.9 + window_s).desired == 1
    assert after(decider, two, 1, 5.0 + window_s).desired == 2


def test_a_dip_of_demand_begins_the_up_window_anew() -> None:
    decider = asleep(Policy(1, 9, scale_up_window_s=30))
    two = Demand(in_flight=1, queued=1, service_s=1.0)
    after(decider, two, 1, 5.0)
    after(decider, ONE, 1, 30.0)
    assert after(decider, two, 1, 31.0).desired == 1
    assert decider.decide(Replicas(1), 60.9).desired == 1
    assert decider.decide(Replicas(1), 61.0).desired == 2


def test_stable_up_at_most_doubles_in_fifteen_seconds() -> None:
    decider = asleep(Policy(1, 9, scale_up_behavior=Behavior.STABLE, scale_up_window_s=0))
    many = Demand(in_flight=1, queued=8, service_s=1.0)
    after(decider, ONE, 1, 20.0)
    assert after(decider, many, 1, 36.0).desired == 2
    assert after(decider, many, 2, 51.0).desired == 4


def test_disabled_up_leaves_the_count_however_long_the_queue() -> None:
    decider = asleep(Policy(1, 9, scale_up_behavior=Behavior.DISABLED))
    decision = after(decider, Demand(in_flight=2, queued=50, service_s=9.0), 2, 100.0)
    assert decision.desired == 2
    assert decision.reason.endswith("scale_up_behavior is disabled")


# Down


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
    assert after(stranger, IDLE, 1, 3.0).next_at == pytest.approx(3.0 + 181.0, abs=0.1)


def test_a_broken_memory_is_refused() -> None:
    with pytest.raises(MemoryInvalid):
        Decider(Policy(), now=0.0, memory={"cold_starts_s": ["soon"]})


def test_the_median_of_the_last_cold_starts_counts() -> None:
    decider = Decider(Policy(), now=0.0)
    for cold_start_s in (4.0, 5.0, 300.0):
        decider.ready_after(cold_start_s)
    assert decider.cold_start_s == 5.0
    for _ in range(20):
        decider.ready_after(0.0)
    assert after(decider, Demand(queued=1), 0, 1.0).desired == 1


# Bounds, silence, restarts


def test_never_below_the_minimum_nor_above_the_maximum() -> None:
    decider = Decider(Policy(2, 3), now=0.0)
    assert after(decider, IDLE, 0, 0.0).desired == 2
    held = after(decider, Demand(in_flight=2, queued=50, service_s=60.0), 2, 10.0)
    assert held.desired == 3
    assert held.reason.endswith("max_replicas is 3")
    idle = after(decider, IDLE, 3, 5000.0)
    assert decider.decide(Replicas(3), 9000.0).desired == 2
    assert idle.desired == 3


def test_before_the_first_report_the_count_stays() -> None:
    decider = Decider(Policy(1, 5), now=0.0)
    assert decider.decide(Replicas(3), 1000.0) == Decision(
        3, "3 of 3: no report from the gateway, the count stays", Cause.NO_REPORT
    )
    assert Decider(Policy(1, 5), now=0.0).decide(Replicas(), 0.0).desired == 1


def test_silence_holds_and_is_not_taken_for_idleness() -> None:
    decider = idle_since(Policy(0, 3, scale_down_window_s=30), at=100.0)
    assert after(decider, None, 1, 110.0).desired == 1
    assert decider.decide(Replicas(1), 9000.0).desired == 1
    assert after(decider, IDLE, 1, 9001.0).desired == 1
    assert decider.decide(Replicas(1), 9031.0).desired == 0


def test_a_new_decider_keeps_the_replicas_it_finds_for_a_window() -> None:
    decider = Decider(Policy(0, 3, scale_down_window_s=30), now=500.0)
    assert after(decider, IDLE, 2, 500.0).desired == 2
    assert decider.decide(Replicas(2), 530.0).desired == 0


def test_after_a_gateway_restart_the_count_does_not_fall_for_a_minute() -> None:
    decider = asleep(Policy(0, 9, scale_down_window_s=0))
    after(decider, Demand(in_flight=3, service_s=1.0), 3, 100.0)
    decider.gateway_restarted(101.0)
    held = after(decider, IDLE, 3, 102.0)
    assert (held.desired, held.cause, held.next_at) == (3, Cause.RESTART, 161.0)
    assert after(decider, Demand(3, 3, service_s=60.0), 3, 120.0).desired == 6
    assert after(decider, IDLE, 6, 160.9).desired == 6
    assert decider.decide(Replicas(6), 161.0).desired == 0


def test_idle_times_begin_anew_after_a_gateway_restart() -> None:
    decider = idle_since(Policy(0, 1, scale_down_window_s=120), at=100.0)
    decider.gateway_restarted(200.0)
    assert after(decider, IDLE, 1, 200.0).desired == 1
    assert decider.decide(Replicas(1), 319.0).desired == 1
    assert decider.decide(Replicas(1), 320.0).desired == 0


# Waiting without a tick


def test_an_idle_service_needs_no_tick() -> None:
    decider = asleep(Policy(0, 1))
    assert decider.decide(Replicas(), 1.0).next_at is None
    busy = after(decider, ONE, 1, 2.0)
    assert busy.next_at is None
    decider = idle_since(Policy(1, 1), at=3.0)
    assert decider.decide(Replicas(1), 3.0).next_at is None


def test_a_queue_is_looked_at_again_every_two_seconds() -> None:
    decider = asleep(Policy(0, 1))
    assert after(decider, Demand(1, 1, service_s=9.0), 1, 10.0).next_at == 12.0


# Invariants over random walks


POLICIES = [
    Policy(0, 6),
    Policy(1, 4, concurrency=2),
    Policy(2, 20, concurrency=8, price_gpu_s=60.0),
    Policy(0, 5, scale_up_window_s=20, scale_down_window_s=30),
    Policy(0, 9, 4, scale_up_behavior=Behavior.STABLE, scale_down_behavior=Behavior.FAST),
    Policy(1, 9, scale_up_behavior=Behavior.FAST, scale_down_behavior=Behavior.DISABLED),
]


def random_walk(policy: Policy, seed: int) -> list[Decision]:
    """200 random events; every decision is checked for bounds, monotony and its promise."""
    rng, decider = random.Random(seed), Decider(policy, now=0.0)
    now, replicas, decisions = 0.0, Replicas(), list[Decision]()
    for _ in range(200):
        previous_now = now
        now += rng.choice([0.0, 0.05, 1.0, 10.0, 200.0]) * rng.random()
        if decisions:
            check_promise(decider, replicas, decisions[-1], previous_now, now)
        in_flight = rng.randrange(replicas.ready * policy.concurrency + 1)
        demand = Demand(in_flight, rng.choice([0, 0, 1, 7, 40]), rng.choice([0.0, 0.2, 5.0, 90.0]))
        event = rng.random()
        if event < 0.05:
            decider.gateway_restarted(now)
        if event < 0.2:
            decider.ready_after(rng.choice([0.5, 5.0, 60.0]))
        more = Demand(demand.in_flight, demand.queued + rng.randrange(1, 9), demand.service_s)
        twin = copy.deepcopy(decider)
        decision = after_all(decider, None if event > 0.95 else demand, replicas, now)
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        if event <= 0.95:
            assert after_all(twin, more, replicas, now).desired >= decision.desired
        decisions.append(decision)
        ready = rng.randint(0, decision.desired)
        replicas = Replicas(ready, (now,) * (decision.desired - ready))
    return decisions


def check_promise(
    decider: Decider, replicas: Replicas, decision: Decision, since: float, now: float
) -> None:
    """Until `next_at`, deciding again about what the engine has carried out changes nothing."""
    quiet_until = min(now, since + 3600.0 if decision.next_at is None else decision.next_at)
    if quiet_until > since and replicas.ready == replicas.live == decision.desired:
        middle = (since + quiet_until) / 2
        assert copy.deepcopy(decider).decide(replicas, middle).desired == decision.desired


def after_all(decider: Decider, demand: Demand | None, replicas: Replicas, now: float) -> Decision:
    decider.observe(demand, now)
    return decider.decide(replicas, now)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_keeps_bounds_is_monotone_in_demand_and_repeatable(
    policy: Policy, seed: int
) -> None:
    assert random_walk(policy, seed) == random_walk(policy, seed)
