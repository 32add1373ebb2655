"""When replicas are added: from zero, by our own rule, by BentoCloud's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.policy import Behavior, Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.proposal import Proposal
from hotplate.autoscaler.rules.scale_rate import ScaleRate
from tests.autoscaler.deciding import IDLE, ONE, after, asleep, decided

# From zero


def test_the_first_request_wakes_one_replica_at_once() -> None:
    decision = after(asleep(Policy(0, 3)), Demand(queued=1), 0, 50.0)
    assert (decision.desired, decision.cause, decision.next_at) == (1, Cause.WAKE, 52.0)
    assert decision.reason == "0 of 1: 1 request queued and no replica"


def test_a_burst_at_zero_starts_as_many_as_its_queue_justifies() -> None:
    short, long = Demand(queued=4, service_s=1.0), Demand(queued=4, service_s=60.0)
    assert after(asleep(Policy(0, 9)), short, 0, 50.0).desired == 1
    assert after(asleep(Policy(0, 9)), long, 0, 50.0).desired == 4


@pytest.mark.parametrize(
    "behavior, step_s", [(None, 5.0), (Behavior.FAST, 15.0)], ids=["ours", "BentoCloud's"]
)
def test_a_burst_starts_in_steps_of_four_or_double(
    behavior: Behavior | None, step_s: float
) -> None:
    policy = Policy(0, 50, scale_up_behavior=behavior)
    decider, burst = asleep(policy), Demand(queued=40, service_s=60.0)
    decider.observe(burst, 20.0)
    first = decider.decide(Replicas(), 20.0)
    assert (first.desired, first.cause) == (4, Cause.WAKE)
    assert f"40 proposed, at most +100 % or +4 in {step_s:.0f} s" in first.reason
    steps = [(0.99, 4), (1.0, 4), (1.99, 8), (2.0, 8), (3.0, 16)]
    desired = [
        decider.decide(Replicas(0, (20.0,) * live), 20.0 + turn * step_s).desired
        for turn, live in steps
    ]
    assert desired == [4, 8, 8, 16, 32]


@pytest.mark.parametrize("behavior, full_at", [(None, 30.0), (Behavior.FAST, 50.0)])
def test_what_a_step_has_cut_is_decided_again_when_the_step_is_over(
    behavior: Behavior | None, full_at: float
) -> None:
    """Nothing else would be a reason: all replicas start, and no request comes or ends."""
    policy = Policy(0, 50, scale_up_behavior=behavior)
    decider, burst = asleep(policy), Demand(queued=16, service_s=60.0)
    now, live, found = 20.0, 0, []
    decider.observe(burst, now)
    while live < 16:
        decision = decider.decide(Replicas(0, (now,) * live), now)
        found.append((now, decision.desired))
        live = decision.desired
        if decision.next_at is None:
            break
        now = decision.next_at
    assert [at for at, desired in found if desired == 16] == [full_at]


def test_what_is_only_expected_keeps_the_longer_step() -> None:
    """Two replicas for what is there; as many again for what would come at this pace."""
    scale_rate = ScaleRate(Policy(0, 50), 0, 20.0)
    proposal = Proposal(20, Cause.QUEUED, lambda: "", forecast=14)
    found = []
    for now in (20.0, 25.0, 30.0, 35.0, 50.0):
        granted = scale_rate.grant(proposal, 0, 0, now)
        scale_rate.decided(granted.replicas, now)
        found.append(granted.replicas)
    assert found == [4, 6, 6, 8, 16]


def bursts(policy: Policy, memory: dict[str, Any] | None = None) -> list[list[int]]:
    """Replicas wished at 0, 0.2 and 15 s of three bursts of twenty long requests, hours apart."""
    decider, found = Decider(policy, now=0.0, memory=memory), []
    decider.record_cold_start(4.0)
    for hour in (1, 2, 3):
        now, live = 3600.0 * hour, 0
        wished = []
        for after_s in (0.0, 0.2, 15.0):
            queue = Demand(queued=20, service_s=60.0)
            live = decided(decider, queue, Replicas(0, (now,) * live), now + after_s).desired
            wished.append(live)
        after(decider, Demand(in_flight=20, service_s=60.0), 20, now + 60.0)
        after(decider, Demand(in_flight=19, service_s=60.0), 20, now + 70.0)
        after(decider, IDLE, 20, now + 120.0)
        found.append(wished)
        memory = json.loads(json.dumps(decider.memory(now + 120.0)))
        decider = Decider(policy, now=0.0, memory=memory)
    return found


def test_a_burst_as_large_as_one_before_is_met_at_once_also_after_a_restart() -> None:
    assert bursts(Policy(0, 50)) == [[4, 4, 8], [20, 20, 20], [20, 20, 20]]


def test_what_has_not_been_seen_or_what_the_user_wrote_goes_in_steps() -> None:
    assert bursts(Policy(0, 50), {"proven_replicas": 6})[0] == [6, 6, 12]
    fast = Policy(0, 50, scale_up_behavior=Behavior.FAST)
    assert bursts(fast) == [[4, 4, 8]] * 3


def test_the_steps_hold_while_a_demand_goes_on() -> None:
    """One that ends among many says nothing of the next burst."""
    decider = asleep(Policy(0, 50))
    after(decider, Demand(1, 0, service_s=60.0), 1, 100.0)
    assert after(decider, Demand(1, 39, service_s=60.0), 1, 101.0).desired == 4
    assert after(decider, Demand(1, 38, service_s=60.0), 4, 102.0).desired == 4


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
    decider = asleep(Policy(1, 9, price_gpu_s=0.0))
    decision = after(decider, Demand(in_flight=1, queued=5, service_s=2.5), 1, 9.0)
    assert decision.desired == 3
    assert decision.reason == (
        "1 of 3: 5 requests queued, 3 would wait longer than 1.25 x the 4 s that a new replica "
        "needs"
    )
    assert decision.cause is Cause.QUEUED


def test_a_start_that_saves_waiting_worth_more_than_itself_is_made_however_short_the_wait() -> None:
    decider = asleep(Policy(1, 9, price_gpu_s=20.0))
    decision = after(decider, Demand(in_flight=1, queued=1, service_s=3.0), 1, 9.0)
    assert (decision.desired, decision.cause) == (1, Cause.FITS)
    decider = asleep(Policy(1, 9, price_gpu_s=600.0))
    decision = after(decider, Demand(in_flight=1, queued=1, service_s=3.0), 1, 9.0)
    assert (decision.desired, decision.cause) == (2, Cause.QUEUED)
    assert decision.reason == (
        "1 of 2: 1 request queued, 1 more replica would save waiting worth more than a start of 4 s"
    )


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


def test_a_burst_on_a_replica_that_was_merely_full_is_not_taken_for_what_was_there_before() -> None:
    decider = Decider(Policy(1, 20, concurrency=8, price_gpu_s=0.0), now=0.0)
    decider.record_cold_start(60.0)
    for second in range(80):
        full = Demand(in_flight=7, service_s=1.0)
        assert after(decider, full, 1, 10.0 + second).desired == 1
    burst = Demand(in_flight=8, queued=150, service_s=1.0)
    decisions = [after(decider, burst, 1, 90.0 + second) for second in range(3)]
    assert [decision.desired for decision in decisions] == [1, 2, 2]
    assert decisions[-1].reason == (
        "1 of 2: for 76 s demand averaged at least 7.0 over 6 s, more than the 6.4 that "
        "1 replica should carry"
    )


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
    assert decision.reason == "1 of 4: 2 requests in flight and 5 queued at concurrency 2"


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
def test_up_takes_the_least_proposal_of_the_window(policy: Policy, window_s: float) -> None:
    decider = asleep(policy)
    after(decider, ONE, 1, 1.0)
    two = Demand(in_flight=1, queued=1, service_s=1.0)
    waiting = after(decider, two, 1, 5.0)
    assert (waiting.desired, waiting.next_at) == (1, 5.0 + window_s)
    assert "2 proposed, 1 until more have been proposed for" in waiting.reason
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
