"""Instances in a simulation: kept ready, shared between organizations, bounded."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from hotplate.autoscaler.sharing.allocation import Quota
from hotplate.autoscaler.sharing.amounts import UNLIMITED
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, STANDBY_SHARE, Setup, simulate
from hotplate.autoscaler.simulator.simulation import Decided

Trace = Mapping[str, RequestTrace]


def visits(count: int = 40, every_s: float = 2000.0) -> Trace:
    """Two models that are asleep whenever the next request comes."""
    times = [every_s * turn for turn in range(1, count + 1)]
    return {name: RequestTrace("acme", times, [5.0] * count) for name in ("m0", "m1")}


def flood(organizations: Sequence[str], requests: int = 300) -> Trace:
    return {
        f"{name}-m": RequestTrace(name, [0.0] * requests, [60.0] * requests)
        for name in organizations
    }


def most_at_once(fleets: Sequence[SimulatedDeployment]) -> int:
    level = most = 0
    for _, change in sorted(change for fleet in fleets for change in fleet.changes):
        level += change
        most = max(most, level)
    return most


def run(trace: Trace, **setup: object) -> tuple[Outcome, Sequence[SimulatedDeployment]]:
    return simulate("ours", trace, Setup(20.0, **setup))  # type: ignore[arg-type] # its own fields


def test_a_start_on_an_instance_that_is_ready_is_sooner_and_its_keeping_is_paid() -> None:
    without, _ = run(visits())
    outcome, fleets = run(visits(), standby=2)
    assert without.gpu_hours.standby == 0.0
    assert without.wait_s.p50 == 20.0
    assert outcome.wait_s.p50 == pytest.approx(20.0 * STANDBY_SHARE)
    assert sum(fleet.standby_hits for fleet in fleets) >= outcome.starts - 2
    hours = outcome.gpu_hours
    assert hours.total == hours.busy + hours.idle + hours.starting + hours.standby
    span_h = outcome.occupancy.span_s / 3600
    assert 0.8 * 2 * span_h < hours.standby <= 2 * span_h + 1


def test_one_that_is_ready_serves_one_of_two_that_start_at_once() -> None:
    outcome, fleets = run(visits(), standby=1)
    hits = sum(fleet.standby_hits for fleet in fleets)
    assert outcome.starts / 2 - 1 <= hits <= outcome.starts / 2


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_replicas_do_not_wait_behind_the_standbys_that_have_their_instances(
    count: int,
) -> None:
    trace = {"m": RequestTrace("acme", [0.0, 0.5], [1.0, 1.0])}
    without, _ = run(trace, instances=count)
    outcome, fleets = run(trace, standby=count, instances=count)
    assert outcome.wait_s == without.wait_s
    assert most_at_once(fleets) == count


def test_the_planner_keeps_what_nine_of_ten_starts_need() -> None:
    outcome, fleets = run(visits(count=100), standby="auto")
    assert sum(fleet.standby_hits for fleet in fleets) > 0.9 * outcome.starts


def test_standby_and_replicas_together_are_never_more_than_there_are() -> None:
    rng = random.Random(2)
    trace = {
        f"m{number}": RequestTrace(
            "acme", sorted(rng.uniform(0, 4000) for _ in range(100)), [30.0] * 100
        )
        for number in range(4)
    }
    outcome, fleets = run(trace, standby="auto", instances=4)
    assert outcome.requests == 400
    assert most_at_once(fleets) == 4
    hours = outcome.gpu_hours
    ended = max(change[0] for fleet in fleets for change in fleet.changes)
    assert hours.total <= 4 * ended / 3600 + 1e-6


def replicas_at(fleet: SimulatedDeployment, at: float) -> int:
    return sum(step for when, step in fleet.changes if when <= at)


def test_scarce_instances_are_shared_by_weight() -> None:
    weights = {"acme": Quota(weight=2.0), "beta": Quota(weight=1.0)}
    _, fleets = run(flood(("acme", "beta")), instances=6, quotas=weights)
    assert [replicas_at(fleet, 500.0) for fleet in fleets] == [4, 2]
    _, fleets = run(flood(("acme", "beta")), instances=6)
    assert [replicas_at(fleet, 500.0) for fleet in fleets] == [3, 3]


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_granted_is_told_and_in_the_order_of_telling_never_more_than_there_is(
    name: str,
) -> None:
    decided: list[Decided] = []
    setup = Setup(20.0, instances=6)
    simulate(name, flood(("acme", "beta", "gama"), requests=40), setup, decided.append)
    granted: dict[str, int] = {}
    for one in decided:
        assert one.granted <= one.desired
        assert ("granted" in one.reason) or one.granted == one.desired
        granted[one.deployment] = one.granted
        assert sum(granted.values()) <= 6
    assert set(granted.values()) == {0}, "each grant that ends is told, too"
    taken = [one for one in decided if one.reason.startswith(f"{one.granted} of {one.desired} gr")]
    assert taken or name != "ours", "who has to give way is told though it decided nothing"


def test_a_quota_is_never_exceeded_and_the_loser_is_told_why() -> None:
    quotas = {"acme": Quota(UNLIMITED._replace(gpus=3))}
    decided: list[Decided] = []
    setup = Setup(20.0, quotas=quotas)
    _, fleets = simulate("ours", flood(("acme", "beta"), requests=60), setup, decided.append)
    acme, beta = fleets
    assert most_at_once([acme]) == 3 < most_at_once([beta])
    assert any("quota of 3 GPUs" in one.reason for one in decided if one.deployment == "acme-m")


@pytest.mark.parametrize("standby", [0, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_what_drains_counts_in_its_quota_until_it_is_gone(name: str, standby: int) -> None:
    trace = {
        "m0": RequestTrace("acme", [0.0] * 8, [300.0] * 8),
        "m1": RequestTrace("acme", [120.0], [1.0]),
    }
    setup = Setup(20.0, quotas={"acme": Quota(UNLIMITED._replace(gpus=2))}, standby=standby)
    outcome, fleets = simulate(name, trace, setup)
    assert outcome.requests == 9
    assert most_at_once(fleets) == 2
    assert fleets[1].waits_s[0] > 190, "m0's replica ends its request before m1 has one"


def test_the_same_seedless_run_gives_the_same_figures() -> None:
    first, second = (run(visits(), standby="auto", instances=3)[0] for _ in range(2))
    assert first == second
