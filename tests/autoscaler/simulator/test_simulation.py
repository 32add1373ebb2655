"""The simulator: its figures add up, and peers do what they are known to do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from hotplate.autoscaler.policy import Policy
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import POLICIES, Setup, simulate
from hotplate.autoscaler.simulator.scaler import MAX_REPLICAS, OurScaler
from hotplate.autoscaler.simulator.simulation import Decided, Hardware, Simulation
from hotplate.autoscaler.simulator.timeline import timeline

HOUR_S = 3600.0


def busy_trace(seed: int = 1, deployments: int = 3, requests: int = 700) -> dict[str, RequestTrace]:
    rng = random.Random(seed)
    trace = {}
    for number in range(deployments):
        now = 0.0
        arrivals = trace[f"model-{number}"] = RequestTrace("acme")
        for _ in range(requests):
            now += rng.expovariate(0.5 + number) + (rng.random() < 0.005) * 400
            arrivals.arrival_s.append(now)
            arrivals.service_s.append(rng.expovariate(1.0))
    return trace


def one(*requests: tuple[float, float]) -> dict[str, RequestTrace]:
    """One deployment with (arrival, service) of each request."""
    return {"m": RequestTrace("acme", [at for at, _ in requests], [s for _, s in requests])}


def seconds(outcome: Outcome) -> dict[str, float]:
    """What replicas cost, in GPU-seconds."""
    return {name: hours * HOUR_S for name, hours in vars(outcome.gpu_hours).items()}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_policy_serves_all_and_its_figures_add_up(name: str, concurrency: int) -> None:
    trace = busy_trace()
    outcome, fleets = simulate(name, trace, Setup(20.0, concurrency))
    assert outcome.requests == sum(len(one.arrival_s) for one in trace.values())
    work_s = sum(sum(one.service_s) for one in trace.values())
    spent = seconds(outcome)
    if concurrency == 1:
        assert spent["busy"] == pytest.approx(work_s)
    assert work_s / concurrency * 0.999 <= spent["busy"] <= work_s * 1.001
    assert spent["starting"] <= outcome.starts * 20.0 + 1e-6
    assert outcome.gpu_hours.total * HOUR_S == pytest.approx(sum(spent.values()))
    # Little's law: what is in the queue is what comes times how long it waits.
    rate = outcome.requests / outcome.occupancy.span_s
    assert outcome.occupancy.queued == pytest.approx(rate * outcome.wait_s.mean, rel=0.02)
    assert outcome.occupancy.running == pytest.approx(work_s / outcome.occupancy.span_s, rel=0.02)
    assert all(not fleet.live and not fleet.total for fleet in fleets)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_trace_gives_the_same_figures(name: str) -> None:
    first, second = (simulate(name, busy_trace(requests=300), Setup())[0] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"knative-kpa"}))
def test_a_request_alone_waits_for_one_cold_start_and_its_replica_sleeps_again(name: str) -> None:
    outcome, _ = simulate(name, one((100.0, 10.0)), Setup(cold_start_s=20.0))
    spent = seconds(outcome)
    assert (outcome.starts, outcome.cold_hits) == (1, 1)
    assert outcome.wait_s.mean == 20.0
    assert spent["busy"] == pytest.approx(10.0)
    assert spent["starting"] == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("name", "idle_s", "late_s"),
    [
        pytest.param("modal-idle", 60, 0, id="Modal: 60 s idle"),
        pytest.param("hpa", 300, 15, id="HPA: 300 s idle, looked at each 15 s"),
        pytest.param("bentocloud", 600, 15, id="BentoCloud: 600 s idle"),
        pytest.param("knative-kpa", 60 + 30, 4, id="Knative: stable window and grace"),
        pytest.param("ray-serve", 30 + 600, 20, id="Ray Serve: look-back and downscale delay"),
        pytest.param("kubeai", 600 + 30, 20, id="KubeAI: window of the mean and delay"),
    ],
)
def test_a_peer_keeps_its_last_replica_as_long_as_it_is_known_to(
    name: str, idle_s: float, late_s: float
) -> None:
    alone = one((100.0, 10.0))
    _, (fleet,) = simulate(name, alone, Setup(cold_start_s=20.0, concurrency=8))
    (_, started), (stopped_at, stopped) = fleet.changes
    assert (started, stopped) == (1, -1)
    assert idle_s <= stopped_at - 130.0 <= idle_s + late_s


def decisions(name: str, trace: dict[str, RequestTrace], setup: Setup) -> list[Decided]:
    found: list[Decided] = []
    simulate(name, trace, setup, found.append)
    return found


def test_one_long_request_gets_one_replica_of_ours_and_two_of_knatives() -> None:
    """knative#8682: a share of one slot."""
    long = one((0.0, 1000.0))
    assert max(one.desired for one in decisions("ours", long, Setup(20.0))) == 1
    assert max(one.desired for one in decisions("knative-kpa", long, Setup(20.0))) == 2


@pytest.mark.parametrize("most", [3, 5])
def test_a_jump_of_demand_is_one_decision_and_no_replica_too_many(most: int) -> None:
    """From one busy replica, as far as the step limits allow: +100 % or +4."""
    steady = [(60.0 * turn, 50.0) for turn in range(40)]
    jump = [(1021.0 + turn / 1000, 900.0) for turn in range(most - 1)]
    found = decisions("ours", one(*sorted(steady + jump)), Setup(10.0))
    assert [step.desired for step in found if step.at_s < 1900.0] == [1, most]


@pytest.mark.parametrize(
    "period_s, service_s, cold_start_s",
    [
        pytest.param(5.0, 1.5, 5.0, id="the second came while the first waited for its replica"),
        pytest.param(30.0, 15.0, 20.0, id="and once it had begun"),
    ],
)
def test_requests_that_met_only_once_have_no_spare_started_again_and_again(
    period_s: float, service_s: float, cold_start_s: float
) -> None:
    alone = one(*[(period_s * turn, service_s) for turn in range(200)])
    outcome, _ = simulate("ours", alone, Setup(cold_start_s))
    assert outcome.starts <= 5


def test_a_steady_stream_of_short_requests_keeps_its_replica() -> None:
    """Each is over before the next report; that there is work again is told at once."""
    steady = one(*[(float(second), 0.1) for second in range(600)])
    found = decisions("ours", steady, Setup(60.0))
    assert [step.desired for step in found if 150.0 < step.at_s < 600.0] == []


def test_what_starts_for_a_growing_queue_is_not_given_up_before_it_is_ready() -> None:
    growing = one(*[(float(second), 10.0) for second in range(300)])
    found = [step for step in decisions("ours", growing, Setup(60.0, 4)) if step.at_s < 60.0]
    assert len(found) > 5
    assert all(step.desired > step.live for step in found)


def test_a_steady_stream_that_fills_most_of_a_replica_starts_no_second_one_again_and_again() -> (
    None
):
    steady = one(*[(float(second), 3.6) for second in range(1500)])  # 3.6 of 4 slots
    found = decisions("ours", steady, Setup(60.0, concurrency=4))
    assert [step.desired for step in found if 150.0 < step.at_s < 1500.0] == [2]


@pytest.mark.parametrize("load", [1.05, 1.1, 1.2, 2.2])
@pytest.mark.parametrize("cold_start_s", [5.0, 20.0, 60.0])
def test_a_regular_stream_whose_overlaps_are_shorter_than_a_report_takes_does_not_flap(
    load: float, cold_start_s: float
) -> None:
    regular = one(*[(float(second), load) for second in range(1500)])
    found = [step for step in decisions("ours", regular, Setup(cold_start_s)) if step.at_s < 1500.0]
    ups = [(after.at_s, after.desired > before.desired) for before, after in pairwise(found)]
    turns = [at for (_, before), (at, up) in pairwise(ups) if up != before]
    window_s = 300.0
    assert all(sum(at <= one < at + window_s for one in turns) <= 1 for at in turns)


def test_a_burst_starts_its_replicas_in_one_decision() -> None:
    burst = one(*[(5.0, 30.0)] * 4)
    found = decisions("ours", burst, Setup(20.0))
    assert found[0].desired == 4
    assert "queued" in found[0].reason


def most_at_once(fleets: Sequence[SimulatedDeployment]) -> int:
    """Replicas that existed at the same time, over all deployments."""
    changes = sorted(change for fleet in fleets for change in fleet.changes)
    level = most = 0
    for _, change in changes:
        level += change
        most = max(most, level)
    return most


@pytest.mark.parametrize("name", POLICIES)
def test_no_more_replicas_than_there_are_instances(name: str) -> None:
    trace = busy_trace(requests=200)
    outcome, fleets = simulate(name, trace, Setup(20.0, instances=3))
    assert most_at_once(fleets) == 3
    assert outcome.requests == 600
    _, free = simulate(name, trace, Setup(20.0))
    assert most_at_once(free) > 3


@pytest.mark.parametrize("name", POLICIES)
def test_no_deployment_has_more_than_its_bound(name: str) -> None:
    flood = one(*[(0.0, 60.0)] * 200)
    _, fleets = simulate(name, flood, Setup(20.0))
    assert most_at_once(fleets) <= MAX_REPLICAS


def test_requests_of_no_length_are_served_too() -> None:
    outcome, _ = simulate("ours", one((0.0, 0.0), (0.0, 0.0)), Setup())
    assert (outcome.requests, outcome.gpu_hours.busy) == (2, 0.0)


@pytest.mark.parametrize("name", POLICIES)
def test_a_timelines_means_are_the_whole(name: str) -> None:
    outcome, fleets = simulate(name, busy_trace(requests=300), Setup(20.0))
    line = timeline(fleets)
    assert sum(line.replicas) * line.bin_s == pytest.approx(outcome.gpu_hours.total * HOUR_S)
    occupancy = outcome.occupancy
    requests_s = (occupancy.queued + occupancy.running) * occupancy.span_s
    assert sum(line.demand) * line.bin_s == pytest.approx(requests_s)


def simulated(ready: int, *requests: tuple[float, float]) -> tuple[Simulation, SimulatedDeployment]:
    """One that may have two replicas of one slot, keeps idle ones for 10 s, and starts in 5 s."""
    policy = Policy(min_replicas=0, max_replicas=2, scale_down_window_s=10.0)
    (arrivals,) = one(*requests).values()
    fleet = SimulatedDeployment("m", arrivals, 1, OurScaler(policy, 5.0, 0.0), most=2)
    fleet.begin_with(ready)
    return Simulation([fleet], Hardware(5.0)), fleet


def test_replicas_that_are_there_before_the_first_request_serve_it_and_sleep_like_others() -> None:
    simulation, fleet = simulated(2, (3.0, 1.0))
    simulation.run()
    assert (list(fleet.waits_s), fleet.starts, fleet.live) == ([0.0], 0, 0)
    assert fleet.busy_s == pytest.approx(1.0)
    assert fleet.idle_s == pytest.approx(10.0 + 3.0 + 10.0, abs=0.5)


def test_what_was_spent_until_a_moment_is_known_and_the_simulation_goes_on() -> None:
    simulation, fleet = simulated(0, (0.0, 4.0), (0.0, 4.0), (20.0, 1.0))
    at_once = {}
    for until_s in (2.0, 6.0, 9.0, 12.0, 100.0):
        simulation.run(until_s)
        at_once[until_s] = tuple(round(value, 3) for value in fleet.spent(until_s))
    # Both start at once, are ready at 5 s and busy until 9 s; one serves the last request.
    assert at_once[2.0] == (0.0, 0.0, 4.0)
    assert at_once[6.0] == (2.0, 0.0, 10.0)
    assert at_once[9.0] == (8.0, 0.0, 10.0)
    assert at_once[12.0] == (8.0, 6.0, 10.0)
    whole, fleet = simulated(0, (0.0, 4.0), (0.0, 4.0), (20.0, 1.0))
    whole.run()
    assert at_once[100.0] == pytest.approx((fleet.busy_s, fleet.idle_s, fleet.starting_s))


def test_a_replica_that_drains_is_busy_until_it_ends() -> None:
    policy = Policy(min_replicas=0, max_replicas=2)
    fleet = SimulatedDeployment(
        "m", RequestTrace("acme", [0.0], [8.0]), 1, OurScaler(policy, 5.0, 0.0)
    )
    fleet.begin_with(1)
    fleet.arrive(0.0)
    fleet.stop_one(2.0)
    assert fleet.spent(6.0) == (6.0, 0.0, 0.0)


def test_what_a_decider_has_learnt_goes_on_in_the_simulation() -> None:
    memory = {"cold_starts_s": [5.0], "service_s": 4.0, "proven_replicas": 8}
    starts = []
    for known in (None, memory):
        policy = Policy(min_replicas=0, max_replicas=9, scale_down_window_s=10.0)
        fleet = SimulatedDeployment(
            "m", RequestTrace("acme", [0.0] * 8, [4.0] * 8), 1, OurScaler(policy, 5.0, 0.0, known)
        )
        simulation = Simulation([fleet], Hardware(5.0))
        simulation.run(0.1)
        starts.append(fleet.starts)
    assert starts[0] == 4 < starts[1]
