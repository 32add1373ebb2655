"""How long requests last, as far as those that still run tell."""

from __future__ import annotations

import math
import random

import pytest

from hotplate.autoscaler.policy import Demand
from hotplate.autoscaler.rules.ages import MOMENTS, OLDER, Ages

WEEK_S = 7 * 86400.0


def seen(*moments: tuple[float, int, float | None, int]) -> Ages:
    """What was observed: (now, in flight, since when the oldest runs, completed)."""
    ages = Ages()
    for now, in_flight, oldest_at, completed in moments:
        ages.observe(Demand(in_flight, 3, 1.0, oldest_at, completed), now)
    return ages


def test_what_runs_for_less_than_twice_the_mean_says_nothing() -> None:
    ages = seen((10.0, 1, 10.0, 5))
    assert ages.lasts_s(4.0, 10.0) == 4.0
    assert ages.lasts_s(4.0, 10.0 + OLDER * 4.0 - 0.1) == 4.0
    assert ages.lasts_s(4.0, 10.0 + OLDER * 4.0) == OLDER * 4.0


def test_one_alone_lasts_at_least_as_long_as_it_has() -> None:
    ages = seen((10.0, 1, 10.0, 5))
    assert ages.lasts_s(1.0, 70.0) == 60.0


def test_slot_time_is_divided_by_ends() -> None:
    """Five slots, one of which ends a request every two seconds: 4 x 20 s of slot time, 10 ends."""
    ages = seen(*((2.0 * turn, 5, 0.0, turn) for turn in range(11)))
    assert ages.lasts_s(1.0, 20.0) == pytest.approx(4 * 20.0 / 10)


def test_requests_that_began_together_are_not_older_than_they_are() -> None:
    ages = seen((0.0, 16, 0.0, 0))
    assert ages.lasts_s(60.0, 59.0) == 60.0, "as long as those before"
    assert ages.lasts_s(10.0, 59.0) == 59.0


def test_one_that_stays_for_a_week_says_nothing_about_those_beside_it() -> None:
    """Four slots; in three of them, now and then, five requests of a second."""
    ages, now, completed = Ages(), 0.0, 0
    while now < WEEK_S:
        for in_flight, ended in ((4, 0), (4, 2), (1, 3)):
            completed += ended
            ages.observe(Demand(in_flight, 0, 1.0, 0.0, completed), now)
            assert ages.lasts_s(1.0, now) == 1.0 or in_flight == 1
            now += 1.0
        now += 3600.0
    assert ages.lasts_s(1.0, WEEK_S) > 1.0, "alone, it is all that there is"


def test_one_slot_that_is_held_for_a_week_is_believed() -> None:
    ages = seen((0.0, 1, 0.0, 0))
    assert ages.lasts_s(1.0, WEEK_S) == WEEK_S


@pytest.mark.parametrize("in_flight", [1, 2, 16])
def test_it_says_from_when_on_it_will_be_believed(in_flight: int) -> None:
    ages = seen((0.0, in_flight, -1.0, 0), (1.5, in_flight, -1.0, 8))
    at = ages.older_at(3.0)
    assert ages.lasts_s(3.0, at - 0.001) == 3.0
    assert ages.lasts_s(3.0, at + 0.001) > 3.0


def test_without_requests_it_says_nothing() -> None:
    ages = seen((0.0, 1, 0.0, 0), (50.0, 0, None, 1))
    assert (ages.lasts_s(1.0, 90.0), ages.older_at(1.0)) == (1.0, math.inf)


def test_an_older_gateway_says_nothing() -> None:
    ages = seen((0.0, 3, None, 0), (600.0, 3, None, 0))
    assert (ages.lasts_s(1.0, 600.0), ages.older_at(1.0)) == (1.0, math.inf)


def test_an_older_gateway_takes_over() -> None:
    ages = seen((0.0, 3, 0.0, 0), (600.0, 3, None, 0))
    assert ages.lasts_s(1.0, 600.0) == 1.0


def test_a_gateway_that_began_anew_has_forgotten_ages_and_ends() -> None:
    """The requests that it has taken over run from now on, and its count begins at 0."""
    ages = seen((0.0, 4, 0.0, 100), (100.0, 4, 0.0, 102), (101.0, 4, 101.0, 0))
    assert ages.lasts_s(1.0, 102.0) == 1.0
    assert ages.lasts_s(1.0, 111.0) == 10.0


def test_while_the_gateway_is_silent_nothing_is_seen() -> None:
    ages = seen((0.0, 4, 0.0, 100))
    ages.forget()
    assert ages.lasts_s(1.0, 500.0) == 1.0
    ages.observe(Demand(4, 3, 1.0, 0.0, 900), 500.0)
    assert ages.lasts_s(1.0, 500.0) == 1.0, "it may be one of many that ended unseen"
    assert ages.lasts_s(1.0, 510.0) == 30.0


def test_a_decider_that_is_new_believes_what_it_has_seen() -> None:
    """An hour-old request and a busy stream: before the first end the hour is no evidence."""
    ages = seen((3600.0, 4, 0.0, 5000))
    assert ages.lasts_s(1.0, 3600.2) == 1.0
    ages.observe(Demand(4, 3, 1.0, 0.0, 5012), 3604.0)
    assert ages.lasts_s(1.0, 3604.0) == 1.0


def test_a_jump_of_the_clock_is_over_with_the_request_that_ran_meanwhile() -> None:
    ages = seen((0.0, 2, 0.0, 0), (1.0, 2, 0.5, 1))
    jumped = 86400.0
    assert ages.lasts_s(1.0, jumped) > 3600.0
    ages.observe(Demand(2, 3, 1.0, jumped, 3), jumped)
    assert ages.lasts_s(1.0, jumped + 1.0) == 1.0


@pytest.mark.parametrize("oldest_at", [60.0, 1e9, math.nan])
def test_an_age_that_cannot_be_says_nothing(oldest_at: float) -> None:
    ages = seen((50.0, 2, oldest_at, 0))
    assert ages.lasts_s(1.0, 55.0) == 1.0


def test_a_long_past_is_thinned_out_and_its_beginning_kept() -> None:
    """A day beside a connection that stays: five reports a second of a stream of 2 s each."""
    ages = Ages()
    for turn in range(86400):
        now = 0.2 * turn
        ages.observe(Demand(3 + turn % 2, 0, 2.0, 0.0, turn // 4), now)
    assert ages.lasts_s(0.5, now) == pytest.approx(2.5 * now / (86400 / 4), rel=0.01)
    assert MOMENTS < 100


@pytest.mark.parametrize("slots", [1, 4, 32])
def test_a_stationary_stream_is_seldom_taken_to_be_slower(slots: int) -> None:
    """Exponential times, all slots busy: the mean of ended requests is right."""
    rng, ages, now, completed = random.Random(slots), Ages(), 0.0, 0
    running = [(0.0, rng.expovariate(1.0)) for _ in range(slots)]
    slower, looks = 0.0, 4000
    for _ in range(looks):
        ended = min(running, key=sum)
        running.remove(ended)
        now, completed = sum(ended), completed + 1
        running.append((now, rng.expovariate(1.0)))
        oldest_at = min(began for began, _ in running)
        ages.observe(Demand(slots, 1, 1.0, oldest_at, completed), now)
        until = min(map(sum, running))
        slower += ages.lasts_s(1.0, rng.uniform(now, until)) - 1.0
    assert slower / looks < 0.35
