from __future__ import annotations

import random
from statistics import mean

import pytest

from hotplate.autoscaler.policy import Policy
from tests.autoscaler.story import Story

Request = tuple[float, float]


def poisson(rate: float, service_s: float, until: float, seed: int) -> list[Request]:
    """(arrival, service time) of random, unrelated requests."""
    rng, at, requests = random.Random(seed), 0.0, list[Request]()
    while (at := at + rng.expovariate(rate)) < until:
        requests.append((at, service_s * rng.uniform(0.5, 1.5)))
    return requests


@pytest.mark.parametrize(
    "policy, rate",
    [
        (Policy(0, 20), 3.0),
        (Policy(0, 20, concurrency=16), 12.0),
        (Policy(1, 20, concurrency=4, scale_down_window_s=120), 6.0),
        (Policy(1, 20, concurrency=4, scale_up_window_s=60, scale_down_window_s=120), 6.0),
    ],
    ids=["priced", "priced, 16 slots", "down window", "both windows"],
)
def test_steady_load_does_not_flap(policy: Policy, rate: float) -> None:
    story = Story(policy, cold_start_s=10.0).play(poisson(rate, 1.0, 900.0, seed=1), 900.0)
    window = 120
    for begin in range(0, 900, window):
        assert story.turns(begin, begin + window) <= 1
    needed = rate / policy.concurrency
    assert needed <= mean(story.desired[-3:]) <= 4 * needed + 2
    assert mean(story.waits_s) < 2.0


def test_a_sleeping_model_wakes_serves_and_sleeps_again() -> None:
    requests = [(100.0, 2.0), (108.0, 2.0), (2000.0, 2.0)]
    story = Story(Policy(0, 3, scale_down_window_s=10), cold_start_s=5.0).play(requests, 3000.0)
    assert [(at, d.desired) for at, d in story.decisions] == [
        (0.0, 0), (100.0, 1), (120.0, 0), (2000.0, 1), (2017.0, 0),
    ]  # fmt: skip
    assert story.waits_s == [5.0, 0.0, 5.0]
    assert story.replica_s == pytest.approx(20.0 + 17.0)
    assert story.decided < 30


def test_a_burst_of_long_requests_gets_replicas_in_steps_and_none_too_late_to_help() -> None:
    story = Story(Policy(0, 100), cold_start_s=20.0).play([(50.0, 60.0)] * 30, 51.0 + 60.0 * 4)
    assert dict((at, d.desired) for at, d in story.decisions[:6])[50.0] == 4
    assert [d.desired for at, d in story.decisions if 50.0 < at <= 80.0] == [8, 16, 22]
    assert max(story.desired) <= 30
    assert max(story.waits_s) <= 20.0 + 60.0 + 20.0


def test_a_busy_replica_is_not_joined_by_one_that_would_find_nothing_to_do() -> None:
    """Utilisation of 70 % at concurrency 1 is one replica's work, not two's."""
    requests = [(10.0 * i, 7.0) for i in range(10, 200)]
    known = {"cold_starts_s": [60.0]}
    story = Story(Policy(1, 10), 60.0, service_s=7.0, memory=known).play(requests, 2000.0)
    assert story.desired == [1]


def test_regular_visits_teach_it_to_stay_and_rare_ones_to_leave() -> None:
    often = Story(Policy(0, 1), 30.0).play([(400.0 * i, 5.0) for i in range(60)], 24_000.0)
    rare = Story(Policy(0, 1), 30.0).play([(3000.0 * i, 5.0) for i in range(20)], 60_000.0)
    assert mean(wait == 0.0 for wait in often.waits_s) > 0.8
    assert rare.starts == 20
    kept = [e - b for (b, _), (e, d) in zip(rare.decisions, rare.decisions[1:], strict=False)
            if d.desired == 0]  # fmt: skip
    assert kept[-1] < kept[1]


def test_the_same_story_is_told_twice() -> None:
    requests = poisson(2.0, 1.0, 600.0, seed=5)
    first, second = (Story(Policy(0, 9), 10.0).play(requests, 900.0) for _ in range(2))
    assert first.decisions == second.decisions
