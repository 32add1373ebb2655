"""What demand proposes at once and after a while, and when to look again."""

from __future__ import annotations

import math

import pytest

from hotplate.autoscaler.policy import Cause, Demand, Policy, Replicas
from hotplate.autoscaler.rules.ages import OLDER
from hotplate.autoscaler.rules.demand import (
    COLD_START_S,
    COLD_STARTS,
    MEAN_S,
    SHORTEST_START_S,
    TICK_S,
    DemandRule,
)
from hotplate.autoscaler.rules.proposal import Proposal
from hotplate.autoscaler.rules.useful_start import HORIZON


def rule_of(concurrency: int = 1, most: int = 9, **policy: float) -> DemandRule:
    rule = DemandRule(Policy(0, most, concurrency, **policy))  # type: ignore[arg-type]
    rule.record_cold_start(10.0)
    return rule


def proposed(
    rule: DemandRule, in_flight: int, queued: int, replicas: Replicas, now: float = 0.0
) -> Proposal:
    demand = Demand(in_flight, queued, 1.0)
    rule.observe(demand, now)
    return rule.propose(demand, replicas, replicas.live, now)


@pytest.mark.parametrize(
    ("total", "concurrency", "most", "level"),
    [(0, 4, 9, 0), (1, 4, 9, 1), (4, 4, 9, 1), (5, 4, 9, 2), (99, 4, 9, 9)],
)
def test_a_level_is_how_many_replicas_demand_fills(
    total: int, concurrency: int, most: int, level: int
) -> None:
    rule = rule_of(concurrency, most)
    assert (rule.total, rule.level) == (0, 0)
    rule.observe(Demand(total, 0), 0.0)
    assert (rule.total, rule.level) == (total, level)
    assert rule.level_of(total) == level


def test_cold_starts_are_known_by_their_median() -> None:
    rule = DemandRule(Policy(0, 5), [30.0, 10.0])
    assert rule.cold_start_s == 20.0
    assert DemandRule(Policy(0, 5)).cold_start_s == COLD_START_S
    rule.record_cold_start(50.0)
    assert rule.cold_start_s == 30.0
    assert rule.pace.cold_start_s == 30.0
    for _ in range(COLD_STARTS):
        rule.record_cold_start(0.0)
    assert rule.cold_start_s == SHORTEST_START_S


def test_the_pace_follows_what_is_known() -> None:
    rule = rule_of(2)
    assert rule.pace == (2, 10.0, 10.0)
    rule.observe(Demand(1, 0, 3.0), 0.0)
    assert rule.pace == (2, 3.0, 10.0)
    rule.observe(Demand(1, 0, 0.0), 0.0)
    assert rule.pace == (2, 3.0, 10.0)
    rule.concurrency = 4
    assert rule.pace == (4, 3.0, 10.0)


@pytest.mark.parametrize(
    ("in_flight", "queued", "live", "replicas", "cause", "why"),
    [
        (0, 0, 1, 0, Cause.IDLE, "no demand"),
        (0, 5, 0, 3, Cause.WAKE, "5 requests queued at concurrency 2 and no replica"),
        (2, 0, 1, 1, Cause.FITS, "2 requests in flight at concurrency 2"),
        (2, 1, 1, 2, Cause.DEMAND, "2 requests in flight and 1 queued at concurrency 2"),
        (2, 0, 3, 1, Cause.FITS, "2 requests in flight at concurrency 2"),
        (2, 99, 3, 9, Cause.DEMAND, "2 requests in flight and 99 queued at concurrency 2"),
    ],
)
def test_where_the_user_scales_up_the_formula_holds(
    in_flight: int, queued: int, live: int, replicas: int, cause: Cause, why: str
) -> None:
    rule = rule_of(2, scale_up_window_s=0.0)
    found = proposed(rule, in_flight, queued, Replicas(live))
    assert (found.replicas, found.cause, found.why()) == (replicas, cause, why)


@pytest.mark.parametrize(("in_flight", "live", "replicas"), [(1, 3, 1), (3, 3, 3), (5, 3, 3)])
def test_without_a_queue_nothing_starts_at_once(in_flight: int, live: int, replicas: int) -> None:
    found = proposed(rule_of(), in_flight, 0, Replicas(live))
    assert (found.replicas, found.cause) == (replicas, Cause.FITS)


def sustained(concurrency: int, in_flight: int) -> tuple[float | None, Proposal | None]:
    """When demand that lasts begins to ask for more than one replica, and by which proposal."""
    rule = rule_of(concurrency)
    for now in range(120):
        found = proposed(rule, in_flight, 0, Replicas(1), float(now))
        if found.replicas > 1:
            return float(now), found
    return None, None


@pytest.mark.parametrize(
    ("concurrency", "in_flight", "replicas"),
    [(1, 1, None), (1, 2, 2), (3, 3, None), (4, 3, None), (4, 4, 2), (10, 8, None), (10, 9, 2)],
)
def test_demand_that_stays_above_what_replicas_should_carry_gets_more(
    concurrency: int, in_flight: int, replicas: int | None
) -> None:
    at, found = sustained(concurrency, in_flight)
    if replicas is None:
        assert found is None
        return
    assert found is not None and at is not None
    assert (found.replicas, found.cause) == (replicas, Cause.DEMAND)
    assert HORIZON * 10.0 <= at <= HORIZON * 10.0 + MEAN_S + 1
    assert "demand averaged at least" in found.why()


@pytest.mark.parametrize(("service_s", "replicas"), [(1.0, 3), (2.5, 4), (5.0, 5), (60.0, 7)])
def test_a_queue_that_lasts_gets_as_many_as_still_find_work(
    service_s: float, replicas: int
) -> None:
    """Eight run, which two replicas should carry, and 40 queue. In the 10 s of a cold start a
    replica runs 80 requests of 1 s, 32 of 2.5 s, 16 of 5 s, or eight that last longer."""
    rule, demand = rule_of(8, price_gpu_s=0.0), Demand(8, 40, service_s)
    for now in range(20):
        rule.observe(demand, float(now))
        found = rule.propose(demand, Replicas(1), 1, float(now))
    assert (found.replicas, found.cause) == (replicas, Cause.DEMAND)


def test_a_replica_that_starts_begins_the_time_anew() -> None:
    rule = rule_of()
    for now in range(60):
        starting = (0.0,) if now == 10 else ()
        found = proposed(rule, 2, 0, Replicas(1, starting), float(now))
        if found.cause is Cause.DEMAND:
            break
    assert found.cause is Cause.DEMAND
    assert now > 10 + HORIZON * 10.0


@pytest.mark.parametrize(
    ("in_flight", "queued", "replicas", "is_due"),
    [
        (0, 0, Replicas(1), False),
        (1, 0, Replicas(1), False),
        (2, 0, Replicas(1), True),
        (1, 1, Replicas(2), True),
        (0, 1, Replicas(), True),
        (2, 1, Replicas(1, (0.0,)), False),
        (20, 0, Replicas(9), False),
        (20, 0, Replicas(8), True),
    ],
)
def test_a_proposal_may_grow_by_itself_where_replicas_are_too_few(
    in_flight: int, queued: int, replicas: Replicas, is_due: bool
) -> None:
    rule = rule_of()
    demand = Demand(in_flight, queued, 1.0)
    rule.observe(demand, 0.0)
    next_at = rule.next_at(demand, replicas, replicas.live, 0.0)
    assert next_at == (TICK_S if is_due else math.inf)


@pytest.mark.parametrize(
    ("now", "next_at", "replicas"),
    [(0.0, OLDER * 1.0, 1), (1.9, 1.9 + TICK_S, 1), (40.0, 40.0 + TICK_S, 4)],
)
def test_it_grows_by_itself_as_what_runs_gets_older(
    now: float, next_at: float, replicas: int
) -> None:
    """Also while a replica starts: requests lasted a second each, and one runs on."""
    rule = rule_of()
    demand = Demand(1, 3, 1.0, oldest_at=0.0)
    rule.observe(demand, 0.0)
    there = Replicas(1, (0.0,))
    assert rule.next_at(demand, there, 2, now) == max(next_at, now + TICK_S)
    found = rule.propose(demand, Replicas(1), 1, now)
    assert found.replicas == replicas
    assert ("those that run say that one takes 40 s" in found.why()) is (replicas > 1)


def test_the_formula_does_not_grow_by_itself() -> None:
    rule = rule_of(scale_up_window_s=0.0)
    rule.observe(Demand(5, 5), 0.0)
    assert rule.next_at(Demand(5, 5), Replicas(1), 1, 0.0) == math.inf


def test_once_the_mean_has_caught_up_only_the_horizon_is_waited_for() -> None:
    rule = rule_of()
    for now in range(int(MEAN_S) + 2):
        proposed(rule, 2, 0, Replicas(1), float(now))
    demand = Demand(2, 0, 1.0)
    at = rule.next_at(demand, Replicas(1), 1, MEAN_S + 1)
    assert MEAN_S + 1 < at <= MEAN_S + 1 + HORIZON * 10.0
    assert rule.next_at(demand, Replicas(1), 1, at) == math.inf


ONE_LATE = "1 would wait longer than 1.25 x the 10 s that a new replica needs"
SAVES = "would save waiting worth more than a start of 10 s"


@pytest.mark.parametrize(
    ("service_s", "queued", "replicas", "price_s", "proposed", "why"),
    [
        (60.0, 5, Replicas(), 600.0, 5, "5 requests queued and no replica"),
        (1.0, 5, Replicas(), 0.0, 1, "5 requests queued and no replica"),
        (5.0, 5, Replicas(1), 600.0, 4, f"5 requests queued, 3 more replicas {SAVES}"),
        (5.0, 4, Replicas(1), 0.0, 2, f"4 requests queued, {ONE_LATE}"),
        (1.0, 5, Replicas(1), 600.0, 1, "1 request in flight and 5 queued fit"),
        (5.0, 5, Replicas(1, (0.0,)), 0.0, 3, f"5 requests queued, {ONE_LATE}"),
        (5.0, 4, Replicas(1, (0.0,) * 3), 0.0, 4, "1 request in flight and 4 queued fit"),
        (5.0, 1, Replicas(1, (0.0,) * 3), 0.0, 2, "1 request in flight and 1 queued fit"),
        (5.0, 1, Replicas(3), 0.0, 2, "1 request in flight and 1 queued fit"),
        (5.0, 24, Replicas(8), 600.0, 9, f"24 requests queued, 1 more replica {SAVES}"),
        (60.0, 1, Replicas(9), 600.0, 2, "1 request in flight and 1 queued fit"),
    ],
)
def test_a_queue_proposes_as_many_replicas_as_help_it(
    service_s: float, queued: int, replicas: Replicas, price_s: float, proposed: int, why: str
) -> None:
    rule = rule_of(price_gpu_s=price_s)
    demand = Demand(1 if replicas.ready else 0, queued, service_s)
    rule.observe(demand, 0.0)
    found = rule.propose(demand, replicas, replicas.live, 0.0)
    assert (found.replicas, found.why()) == (proposed, why)
    causes = {"no replica": Cause.WAKE, "fit": Cause.FITS}
    assert found.cause == next((causes[end] for end in causes if why.endswith(end)), Cause.QUEUED)


@pytest.mark.parametrize(
    ("replicas", "proposed", "why"),
    [
        (Replicas(3), 16, "24 requests queued and 10 coming, 25 would wait longer"),
        (Replicas(), 17, "24 requests queued and 10 coming and no replica"),
    ],
)
def test_of_requests_that_will_come_until_a_replica_is_ready_half_count(
    replicas: Replicas, proposed: int, why: str
) -> None:
    """Two more come each second: twenty in a cold start of ten."""
    rule = rule_of(most=20, price_gpu_s=0.0)
    for now in range(13):
        demand = Demand(1, 2 * now, 5.0)
        rule.observe(demand, float(now))
    found = rule.propose(demand, replicas, replicas.live, 12.0)
    assert found.replicas == proposed
    assert found.why().startswith(why)


@pytest.mark.parametrize(
    ("concurrency", "in_flight", "replicas"),
    [
        (1, [2] * 17, 1),
        (1, [2] * 18, 2),
        (1, [2] * 16 + [9] * 2, 2),  # a burst at the end is another rule's
        (1, [5] * 17 + [2], 2),  # as is a mean that demand has left
        (10, [20] * 18, 3),
        (10, [8] * 60, 1),
    ],
)
def test_the_lowest_mean_of_a_whole_horizon_counts(
    concurrency: int, in_flight: list[int], replicas: int
) -> None:
    rule = rule_of(concurrency)
    for now, each in enumerate(in_flight):
        found = proposed(rule, each, 0, Replicas(1), float(now))
    assert found.replicas == replicas
    assert (found.cause is Cause.DEMAND) is (replicas > 1)


def test_what_the_mean_has_proposed_stays_while_the_mean_supports_it() -> None:
    rule = rule_of()
    for now in range(18):
        found = proposed(rule, 2, 0, Replicas(1), float(now))
    assert (found.replicas, found.cause) == (2, Cause.DEMAND)
    starting, demand = Replicas(1, (17.0,)), Demand(1, 0, 1.0)
    for now in range(18, 24):
        found = proposed(rule, 1, 0, starting, float(now))
        mean = (2 * (24 - now) + now - 18) / 6
        assert (found.replicas, found.cause) == (2, Cause.FITS)
        assert found.why() == f"demand still averages {mean:.1f} over 6 s"
        assert rule.next_at(demand, starting, 2, float(now)) == now + TICK_S
    found = proposed(rule, 1, 0, starting, 24.0)
    assert (found.replicas, found.why()) == (1, "1 request in flight fit")
    assert rule.next_at(demand, starting, 2, 24.0) == math.inf
