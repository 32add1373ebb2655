from __future__ import annotations

import json
import random
from typing import Any

import pytest

from hotplate.autoscaler.decider import Decider
from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.headroom import (
    PAUSE_S,
    PRIOR_FALLS,
    SIZE,
    Headroom,
    best_duration_s,
)
from hotplate.autoscaler.rules.keepalive import BUCKETS, EDGES, MIDDLES, bucket_of
from hotplate.autoscaler.rules.useful_start import StartPace
from tests.autoscaler.deciding import IDLE, after, decided

SERVICE_S = 60.0
ONE, TWO = Demand(1, 0, SERVICE_S), Demand(2, 0, SERVICE_S)


def used(policy: Policy, *, rises: bool) -> tuple[Decider, float]:
    """A decider whose demand rose to one, and 25 s later to two or back to none, ten times."""
    decider, now = Decider(policy, now=0.0), 0.0
    decider.record_cold_start(20.0)
    for _ in range(10):
        after(decider, ONE, 2, now)
        after(decider, TWO if rises else IDLE, 2, now + 25.0)
        after(decider, IDLE, 2, now + 90.0)
        now += 7200.0
    after(decider, IDLE, 0, now)
    return decider, now


def test_where_a_second_request_usually_follows_its_replica_starts_with_the_first() -> None:
    decider, now = used(Policy(0, 5), rises=True)
    decision = decided(decider, ONE, Replicas(1), now + 1.0)
    assert (decision.desired, decision.cause, decision.kept) == (2, Cause.HEADROOM, 1)
    assert decision.reason.startswith(
        "1 of 2: demand usually rises further, so one more replica is kept ready for another "
    )
    assert decision.next_at is not None
    assert decided(decider, ONE, Replicas(1, (now,)), now + 2.0).desired == 2


def test_where_a_request_stays_alone_it_has_one_replica() -> None:
    for decider, now in (used(Policy(0, 5), rises=False), (Decider(Policy(0, 5), now=0.0), 0.0)):
        for second in range(300):
            assert decided(decider, ONE, Replicas(1), now + second).desired == 1


@pytest.mark.parametrize("ended", ["demand fell", "its time had passed"])
def test_after_unused_headroom_none_is_started_for_a_minute(ended: str) -> None:
    headroom, pace, now = Headroom(0.0, max_replicas=5), StartPace(1, SERVICE_S, 20.0), 0.0
    for _ in range(30):
        for level, after_s in ((1, 0.0), (2, 25.0), (0, 90.0)):
            headroom.set_demand(level, now + after_s)
            headroom.propose(2, pace, 600.0, now + after_s)
        now += 7200.0
    headroom.set_demand(1, now)
    begun = headroom.propose(1, pace, 600.0, now)
    assert begun.replicas == 2
    if ended == "demand fell":
        now += 5.0
    else:
        now = begun.next_at
        assert headroom.propose(1, pace, 600.0, now).replicas == 0
    headroom.set_demand(0, now)
    for later_s, live, replicas in ((10.0, 1, 0), (59.0, 1, 0), (61.0, 1, 2), (70.0, 2, 2)):
        headroom.set_demand(1, now + later_s)
        assert headroom.propose(live, pace, 600.0, now + later_s).replicas == replicas
        headroom.set_demand(0, now + later_s + 5.0)


def test_headroom_respects_max_replicas_and_how_the_user_scales() -> None:
    for policy in (Policy(0, 1), Policy(0, 5, scale_up_window_s=0.0), Policy(0, 5, price_gpu_s=0)):
        decider, now = used(policy, rises=True)
        assert decided(decider, ONE, Replicas(1), now + 1.0).desired == 1


def test_what_follows_is_remembered_by_the_next_revision() -> None:
    decider, now = used(Policy(0, 5), rises=True)
    memory = json.loads(json.dumps(decider.memory(now)))
    heir = Decider(Policy(0, 5), now=3.0, memory=memory)
    after(heir, IDLE, 0, 3.0)
    assert decided(heir, ONE, Replicas(1), 4.0).desired == 2


@pytest.mark.parametrize("data", [{"1": [1.0]}, {"x": [0.0] * 2 * SIZE}, {"1": [-1.0] * 2 * SIZE}])
def test_a_foreign_memory_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(MemoryInvalid, match="start without it"):
        Headroom.from_json(data, 0.0, 5)


def least_cost_s(weights: list[float], price_s: float, start_s: float) -> float:
    """What `best_duration_s` finds in one pass, from its definition."""
    rises = weights[:SIZE]
    falls = [weight + PRIOR_FALLS / BUCKETS for weight in weights[SIZE:-1]] + [weights[-1]]
    costs = {0.0: sum(rises) * price_s}
    for edge, edge_s in enumerate(EDGES):
        cost = 0.0
        for bucket, stay_s in enumerate(MIDDLES):
            within = bucket < edge
            lasted_s = stay_s if within else edge_s
            missing = max(0.0, 1 - stay_s / start_s) if start_s else 0.0
            cost += rises[bucket] * (lasted_s + price_s * (missing if within else 1.0))
            cost += falls[bucket] * max(lasted_s, start_s)
        costs[edge_s] = cost
    return min(costs, key=lambda edge_s: costs[edge_s])


@pytest.mark.parametrize("start_s", [0.0, 5.0, 40.0])
@pytest.mark.parametrize("price_s", [600.0, 3000.0])
def test_headroom_is_kept_for_as_long_as_costs_least(price_s: float, start_s: float) -> None:
    rng = random.Random(1)
    found = set()
    for _ in range(200):
        weights = [rng.random() ** 8 * rng.choice((0, 1, 20)) for _ in range(2 * SIZE)]
        best_s = best_duration_s(weights, price_s, start_s=start_s)
        assert best_s == pytest.approx(least_cost_s(weights, price_s, start_s))
        found.add(best_s)
    assert len(found) > 1
    assert best_duration_s([0.0] * 2 * SIZE, price_s, start_s=start_s) == 0.0


def learnt(headroom: Headroom, now: float) -> dict[tuple[str, str], int]:
    """How often each level was seen to rise and to fall."""
    return {
        (level, way): round(sum(half))
        for level, weights in headroom.to_json(now).items()
        for way, half in (("rose", weights[:SIZE]), ("fell", weights[SIZE:]))
        if sum(half)
    }


def test_only_a_stay_after_a_rise_is_learnt() -> None:
    headroom = Headroom(0.0, max_replicas=5)
    assert not headroom.is_due
    for now, level in enumerate((1, 1, 2, 1, 3, 0, 1)):
        headroom.set_demand(level, float(now))
    assert headroom.is_due
    assert learnt(headroom, 6.0) == {("1", "rose"): 1, ("2", "fell"): 1, ("3", "fell"): 1}
    headroom.forget()
    assert not headroom.is_due
    headroom.set_demand(2, 7.0)
    assert ("1", "rose") in learnt(headroom, 7.0)
    assert learnt(headroom, 7.0)["1", "rose"] == 1, "nobody knows since when it was there"


def rising(level: int = 1, max_replicas: int = 5) -> Headroom:
    """Demand that has often risen beyond this level after 25 s."""
    weights = [0.0] * 2 * SIZE
    weights[bucket_of(25.0)] = 50.0
    return Headroom.from_json({str(level): weights}, 0.0, max_replicas)


@pytest.mark.parametrize(
    ("demanded", "max_replicas", "live", "replicas"),
    [
        (1, 5, 1, 2),
        (1, 2, 1, 2),
        (1, 1, 1, 0),
        (2, 5, 1, 2),  # it passed the level
        (0, 5, 1, 0),
        (1, 5, 2, 2),
    ],
)
def test_a_level_that_usually_rises_gets_one_more(
    demanded: int, max_replicas: int, live: int, replicas: int
) -> None:
    headroom = rising(max_replicas=max_replicas)
    headroom.set_demand(demanded, 0.0)
    assert headroom.is_due is (demanded > 0)
    proposal = headroom.propose(live, StartPace(1, SERVICE_S, 20.0), 600.0, 0.0)
    assert proposal.replicas == replicas
    assert headroom.is_due is (replicas > 0)


def test_headroom_is_considered_once_for_each_rise() -> None:
    headroom, pace = rising(), StartPace(1, SERVICE_S, 20.0)
    headroom.set_demand(1, 0.0)
    until = headroom.propose(1, pace, 600.0, 0.0).next_at
    assert until > 25.0
    assert headroom.propose(1, pace, 600.0, until - 1).next_at == until
    assert headroom.propose(1, pace, 600.0, until).replicas == 0
    assert headroom.propose(1, pace, 600.0, until + 1).replicas == 0
    headroom.set_demand(2, until + 2)
    headroom.set_demand(1, until + 3)
    assert headroom.propose(1, pace, 600.0, until + 3).replicas == 0, "demand fell to it"
    headroom.set_demand(0, until + 4)
    headroom.set_demand(1, until + PAUSE_S)
    assert headroom.propose(1, pace, 600.0, until + PAUSE_S).replicas == 2


def usually_rising(*levels: int) -> Headroom:
    weights = rising().to_json(0.0)["1"]
    return Headroom.from_json({str(level): weights for level in levels}, 0.0, 5)


def test_of_several_levels_the_highest_counts_and_none_is_started_twice_within_a_minute() -> None:
    headroom, pace = usually_rising(1, 2), StartPace(1, SERVICE_S, 20.0)
    story = (
        # (now, demand, live, replicas)
        (0.0, 2, 2, 3),
        (1.0, 1, 3, 2),  # what the lower level keeps goes on
        (2.0, 2, 2, 0),  # it was not used a second ago
        (3.0, 1, 2, 0),
        (4.0, 2, 3, 3),  # it is there, so to keep it costs little
        (5.0, 0, 3, 0),
        (64.9, 2, 1, 2),
        (65.0, 0, 2, 0),
        (126.0, 2, 1, 3),
    )
    for now, demand, live, replicas in story:
        headroom.set_demand(demand, now)
        assert headroom.propose(live, pace, 600.0, now).replicas == replicas, now


@pytest.mark.parametrize(("cold_start_s", "replicas"), [(0.5, 2), (20.0, 2), (200.0, 0)])
def test_no_replica_starts_that_would_be_given_up_before_it_is_ready(
    cold_start_s: float, replicas: int
) -> None:
    headroom, pace = rising(), StartPace(1, SERVICE_S, cold_start_s)
    headroom.set_demand(1, 0.0)
    proposal = headroom.propose(1, pace, 600.0, 0.0)
    assert proposal.replicas == replicas
    if replicas:
        assert proposal.next_at > cold_start_s


def test_a_stay_of_no_time_is_of_the_shortest_bucket() -> None:
    headroom = Headroom(0.0, 5)
    headroom.set_demand(1, 10.0)
    headroom.set_demand(2, 10.0)
    headroom.set_demand(0, 10.0 + 1.01 * EDGES[3])
    learnt_in = {
        level: [bucket for bucket, weight in enumerate(weights) if weight]
        for level, weights in headroom.to_json(100.0).items()
    }
    assert learnt_in == {"1": [0], "2": [SIZE + 3]}
