from __future__ import annotations

import json
import math
import random

import pytest

from hotplate.autoscaler.errors import MemoryInvalid
from hotplate.autoscaler.rules.decay import HALF_LIFE_S
from hotplate.autoscaler.rules.keepalive import (
    BUCKETS,
    EDGES,
    MIDDLES,
    KeepAlive,
    bucket_of,
    cheapest,
)


def test_buckets_are_half_octaves_from_a_second_to_an_hour() -> None:
    assert (EDGES[0], EDGES[2], EDGES[-1], len(EDGES)) == (1.0, 2.0, 3600.0, BUCKETS + 1)
    assert [bucket_of(g) for g in (1.0, 1.5, 2.0, 3599.0, 3600.0, 3601.0)] == [0, 1, 2, 23, 23, 24]


def test_the_cheapest_keep_alive_is_the_brute_force_argmin() -> None:
    rng = random.Random(11)
    for _ in range(100):
        weights = [rng.choice([0.0, rng.random() * 5]) for _ in range(BUCKETS + 1)]
        price = rng.choice([0.0, 30.0, 600.0, 5000.0])

        def cost(tau: float, weights: list[float] = weights, price: float = price) -> float:
            bridged = sum(
                w * (g if g <= tau else tau + price)
                for w, g in zip(weights[:BUCKETS], MIDDLES, strict=False)
            )
            return bridged + weights[BUCKETS] * (tau + price)

        assert cost(cheapest(weights, price)) == pytest.approx(min(cost(tau) for tau in EDGES))


def test_without_experience_a_replica_is_kept_for_a_minute_and_a_half() -> None:
    assert KeepAlive(0.0).tau_s(1, 600.0, 0.0) == pytest.approx(90.5, abs=0.1)


def test_a_higher_price_never_keeps_shorter() -> None:
    taus = [KeepAlive(0.0).tau_s(1, price, 0.0) for price in (0, 100, 300, 600, 2400, 100_000)]
    assert taus == sorted(taus)
    assert (taus[0], taus[-1]) == (1.0, 3600.0)


def test_regular_gaps_are_bridged_and_hopeless_ones_are_not_paid_for() -> None:
    regular, hopeless = KeepAlive(0.0), KeepAlive(0.0)
    for hour in range(20):
        regular.learn(1, 300.0, hour * 360.0)
        hopeless.learn(1, 3000.0, hour * 360.0)
    assert 300.0 <= regular.tau_s(1, 600.0, 7200.0) <= 512.0
    assert hopeless.tau_s(1, 600.0, 7200.0) < 90.0


def test_gaps_under_a_second_are_not_counted() -> None:
    keep_alive = KeepAlive(0.0)
    for _ in range(1000):
        keep_alive.learn(1, 0.99, 1.0)
    assert keep_alive.to_json(1.0) == {}


def test_levels_learn_apart() -> None:
    keep_alive = KeepAlive(0.0)
    for _ in range(20):
        keep_alive.learn(2, 3000.0, 0.0)
    assert keep_alive.tau_s(2, 600.0, 0.0) < keep_alive.tau_s(1, 600.0, 0.0)


def test_what_was_learnt_fades_by_half_in_a_day_back_to_the_prior() -> None:
    keep_alive = KeepAlive(0.0)
    for _ in range(20):
        keep_alive.learn(1, 3000.0, 0.0)
    short = keep_alive.tau_s(1, 600.0, 0.0)
    assert keep_alive.to_json(HALF_LIFE_S)["1"][23] == 10.0
    assert short < keep_alive.tau_s(1, 600.0, 10 * HALF_LIFE_S) == pytest.approx(90.5, abs=0.1)


def test_gaps_of_weeks_fade_as_one_by_one_and_their_weights_stay_small() -> None:
    rng, keep_alive, now = random.Random(3), KeepAlive(0.0), 0.0
    weights = [0.0] * (BUCKETS + 1)
    for _ in range(600):
        wait_s, gap_s = rng.expovariate(1 / 3600.0), rng.uniform(1.0, 5000.0)
        now += wait_s
        weights = [weight * 0.5 ** (wait_s / HALF_LIFE_S) for weight in weights]
        weights[bucket_of(gap_s)] += 1.0
        keep_alive.learn(1, gap_s, now)
    assert keep_alive.to_json(now)["1"] == pytest.approx(weights, abs=1e-3)


def test_after_years_nothing_is_left_of_what_was_learnt() -> None:
    keep_alive = KeepAlive(0.0)
    keep_alive.learn(1, 3000.0, 0.0)
    years_s = 50 * 365 * HALF_LIFE_S
    assert keep_alive.tau_s(1, 600.0, years_s) == KeepAlive(0.0).tau_s(1, 600.0, 0.0)
    keep_alive.learn(1, 3000.0, years_s)
    assert keep_alive.to_json(years_s)["1"][23] == 1.0


def test_memory_survives_a_restart_with_a_new_clock() -> None:
    before = KeepAlive(0.0)
    for at in range(20):
        before.learn(3, 700.0, 50_000.0 + at)
    stored = json.loads(json.dumps(before.to_json(50_020.0)))
    after = KeepAlive.from_json(stored, now=5.0)
    assert after.tau_s(3, 2400.0, 5.0) == before.tau_s(3, 2400.0, 50_020.0) > 700.0
    assert after.to_json(5.0) == stored


@pytest.mark.parametrize(
    "data",
    [
        {"1": [1.0]},
        {"one": [0.0] * 25},
        {"1": ["x"] * 25},
        {"1": [*[0.0] * 24, -1.0]},
        {"1": [math.inf] * 25},
        {"1": [math.nan] * 25},
    ],
)
def test_a_foreign_memory_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(MemoryInvalid, match="start without it"):
        KeepAlive.from_json(data, 0.0)
