"""What holds for every decision: bounds, silence, restarts, the next look, random walks."""

from __future__ import annotations

import pickle
import random
from typing import cast

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Behavior, Cause, Decision, Demand, Policy, Replicas
from tests.autoscaler.deciding import IDLE, ONE, after, asleep, decided, idle_since


@pytest.mark.parametrize(
    "memory",
    [
        {"cold_starts_s": ["soon"]},
        {"cold_starts_s": [float("inf")]},
        {"proven_replicas": -1},
        {"service_s": "long"},
        {"keep_alive": []},
        {"spare": None},
    ],
)
def test_a_broken_memory_is_refused(memory: dict[str, object]) -> None:
    with pytest.raises(MemoryInvalid):
        Decider(Policy(), now=0.0, memory=memory)


def test_the_median_of_the_last_cold_starts_counts() -> None:
    decider = Decider(Policy(), now=0.0)
    for cold_start_s in (4.0, 5.0, 300.0):
        decider.record_cold_start(cold_start_s)
    assert decider.cold_start_s == 5.0
    for _ in range(20):
        decider.record_cold_start(0.0)
    assert after(decider, Demand(queued=1), 0, 1.0).desired == 1


def test_how_long_requests_last_and_starts_take_outlives_the_decider() -> None:
    before = Decider(Policy(0, 9, price_gpu_s=0.0), now=0.0)
    before.record_cold_start(4.0)
    before.observe(Demand(in_flight=1, service_s=30.0), 1.0)
    memory = before.memory(2.0)
    queue = Demand(in_flight=1, queued=2)
    knows = decided(
        Decider(Policy(0, 9, price_gpu_s=0.0), now=0.0, memory=memory), queue, Replicas(1), 1.0
    )
    assert (knows.desired, "1.25 x the 4 s" in knows.reason) == (3, True)
    guesses = Decider(Policy(0, 9, price_gpu_s=0.0), now=0.0, memory=memory | {"service_s": 0.0})
    assert decided(guesses, queue, Replicas(1), 1.0).desired == 2


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
    without_report = decider.decide(Replicas(3), 1000.0)
    assert (without_report.desired, without_report.cause, without_report.next_at) == (
        3,
        Cause.NO_REPORT,
        None,
    )
    assert without_report.reason == "3 of 3: no report from the gateway, the count stays"
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


@pytest.mark.parametrize("began", [100.0, 5000.0], ids=["long ago", "in the future"])
def test_starts_that_never_end_are_not_joined_by_more(began: float) -> None:
    """A replica that never becomes ready, and a clock that was set back while it starts."""
    decider = Decider(Policy(0, 50), now=0.0)
    queue, live = Demand(queued=9, service_s=30.0), 0
    counts = []
    for now in range(100, 2000, 2):
        live = decided(decider, queue, Replicas(0, (began,) * live), float(now)).desired
        counts.append(live)
    assert counts[-1] == max(counts) <= 9
    assert len(set(counts)) <= 3, "two steps, and no more"


# Waiting without a tick


def test_an_idle_service_needs_no_tick() -> None:
    decider = asleep(Policy(0, 1))
    assert decider.decide(Replicas(), 1.0).next_at is None
    busy = after(decider, ONE, 1, 2.0)
    assert busy.next_at is None
    decider = idle_since(Policy(1, 1), at=3.0)
    assert decider.decide(Replicas(1), 3.0).next_at is None


def test_a_queue_is_looked_at_again_until_its_mean_has_settled_and_been_long_enough() -> None:
    decider = asleep(Policy(0, 2))
    assert after(decider, Demand(1, 1, service_s=1.0), 1, 10.0).next_at == 12.0
    decider.decide(Replicas(1), 14.0)
    settled = decider.decide(Replicas(1), 16.0)
    assert settled.next_at == 14.0 + 1.25 * 4.0
    assert decider.decide(Replicas(1), 19.0).desired == 2


def test_a_queue_that_no_more_replicas_can_help_needs_no_tick() -> None:
    decider = asleep(Policy(0, 2))
    queue = Demand(1, 9, service_s=9.0)
    assert decided(decider, queue, Replicas(1, (10.0,)), 10.0).next_at is None, "one is on its way"
    assert after(decider, queue, 2, 20.0).next_at is None, "as many as may be"


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
            decider.record_cold_start(rng.choice([0.5, 5.0, 60.0]))
        more = Demand(demand.in_flight, demand.queued + rng.randrange(1, 9), demand.service_s)
        twin = twin_of(decider)
        decision = decided(decider, None if event > 0.95 else demand, replicas, now)
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        if event <= 0.95:
            assert decided(twin, more, replicas, now).desired >= decision.desired
        decisions.append(decision)
        ready = rng.randint(0, decision.desired)
        replicas = Replicas(ready, (now,) * (decision.desired - ready))
    return decisions


def twin_of(decider: Decider) -> Decider:
    """A copy that shares nothing; `copy.deepcopy` would take most of this module's time."""
    return cast("Decider", pickle.loads(pickle.dumps(decider)))


def check_promise(
    decider: Decider, replicas: Replicas, decision: Decision, since: float, now: float
) -> None:
    """Until `next_at`, deciding again about what the engine has carried out changes nothing."""
    quiet_until = min(now, since + 3600.0 if decision.next_at is None else decision.next_at)
    if quiet_until > since and replicas.ready == replicas.live == decision.desired:
        middle = (since + quiet_until) / 2
        assert twin_of(decider).decide(replicas, middle).desired == decision.desired


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_keeps_bounds_is_monotone_in_demand_and_repeatable(
    policy: Policy, seed: int
) -> None:
    assert random_walk(policy, seed) == random_walk(policy, seed)
