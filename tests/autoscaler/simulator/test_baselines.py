"""Peers' rules leave out the ticks at which they could not change anything."""

from __future__ import annotations

import math
import random

import pytest

from hotplate.autoscaler.policy import Decision, Demand, Replicas
from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.baselines import BentoCloud, Hpa, KnativeKpa, KubeAi, RayServe
from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.outcome import outcome
from hotplate.autoscaler.simulator.simulation import Hardware, Simulation

Rule = KnativeKpa | Hpa | RayServe | KubeAi


class EachTick:
    """A rule that is asked at each of its ticks."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.asked = 0

    def changed(self, total: int, live: int, now: float) -> float:
        return self._rule.changed(total, live, now)

    def record_cold_start(self, cold_start_s: float, now: float) -> float:
        return self._rule.record_cold_start(cold_start_s, now)

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        self.asked += 1
        step = self._rule.decide(demand, replicas, now)
        tick_s = self._rule.tick_s
        if step.next_at is not None:
            step.next_at = (math.floor(now / tick_s + 1e-9) + 1) * tick_s
        return step


class AsTheyAsk(EachTick):
    """The same, asked when it says."""

    def decide(self, demand: Demand, replicas: Replicas, now: float) -> Decision:
        self.asked += 1
        return self._rule.decide(demand, replicas, now)


def visits(seed: int) -> RequestTrace:
    """Some a second apart, some minutes, some of no length."""
    rng = random.Random(seed)
    found, now = RequestTrace("acme"), 0.0
    for _ in range(300):
        now += rng.choice((0.0, 1.0, 30.0, 400.0, 900.0)) * rng.random()
        found.arrival_s.append(now)
        found.service_s.append(rng.choice((0.0, 1e-7, 2.0, 70.0)) * rng.random())
    return found


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("rule", [KnativeKpa, Hpa, BentoCloud, RayServe, KubeAi])
def test_leaving_out_idle_ticks_changes_nothing(rule: type[Rule], concurrency: int) -> None:
    scalers = EachTick(rule(concurrency)), AsTheyAsk(rule(concurrency))
    told = []
    for scaler in scalers:
        fleet = SimulatedDeployment("m", visits(seed=concurrency), concurrency, scaler)
        Simulation([fleet], Hardware(20.0)).run()
        told.append((outcome([fleet]).to_json(), fleet.changes, fleet.waits_s))
    assert told[0] == told[1]
    assert scalers[1].asked < 0.8 * scalers[0].asked


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        pytest.param(Hpa, [(0, 1), (15, 5), (30, 10), (45, 20)], id="HPA: +4 or +100 % in 15 s"),
        pytest.param(RayServe, [(0, 1), (40, 20)], id="Ray Serve: above for 30 s since 10 s"),
        pytest.param(
            KubeAi,
            [(0, 1), (10, 4), (20, 7), (30, 10), (40, 14), (50, 17), (60, 20)],
            id="KubeAI: the mean of 600 s, every 10 s",
        ),
    ],
)
def test_a_replica_that_becomes_ready_does_not_make_a_rule_decide_before_its_tick(
    rule: type[Rule], steps: list[tuple[float, int]]
) -> None:
    burst = RequestTrace("acme", [0.0] * 200, [600.0] * 200)
    found: list[tuple[float, int]] = []
    fleet = SimulatedDeployment("m", burst, 1, rule(1))
    Simulation([fleet], Hardware(17.0), lambda it: found.append((it.at_s, it.desired))).run()
    assert [(at, min(desired, 20)) for at, desired in found[: len(steps)]] == steps


@pytest.mark.parametrize(("total", "desired"), [(9, 10), (10, 10), (11, 10), (12, 12)])
def test_the_hpa_leaves_alone_what_is_within_a_tenth(total: int, desired: int) -> None:
    rule = Hpa(1)
    rule.changed(total, 10, 0.0)
    assert rule.decide(Demand(total, 0), Replicas(10), 15.0).desired == desired
