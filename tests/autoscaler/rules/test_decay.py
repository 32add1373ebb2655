"""Counts that fade, and results that are calculated again only when they would change."""

from __future__ import annotations

import pytest

from hotplate.autoscaler.rules.decay import (
    HALF_LIFE_S,
    MOST_HALF_LIVES,
    PRICE_TOLERANCE,
    REBASE,
    REFRESH_S,
    REFRESH_SHARE,
    DecayingHistogram,
)


class Calculating:
    """Counts how often something was calculated."""

    def __init__(self, histogram: DecayingHistogram) -> None:
        self.histogram = histogram
        self.times = 0

    def __call__(self, weights: list[float], price_s: float) -> float:
        self.times += 1
        return sum(weights) * price_s

    def result(self, price_s: float = 10.0, now: float = 0.0, *, case: bool = False) -> float:
        return self.histogram.cached(self, price_s, now, case=case)


def test_an_observation_halves_with_each_half_life() -> None:
    histogram = DecayingHistogram(0.0, [0.0, 0.0])
    histogram.add(0, 0.0)
    assert histogram.at(0.0) == [1.0, 0.0]
    histogram.add(1, HALF_LIFE_S)
    assert histogram.at(HALF_LIFE_S) == [0.5, 1.0]
    assert histogram.at(2 * HALF_LIFE_S) == [0.25, 0.5]
    assert histogram.at(-1.0) == [1.0, 2.0], "the clock may begin anew"
    assert max(histogram.at(2 * MOST_HALF_LIVES * HALF_LIFE_S)) < 1e-200


def test_weights_stay_small_however_long_it_goes_on() -> None:
    histogram, now = DecayingHistogram(0.0, [0.0]), 0.0
    for _ in range(3000):
        histogram.add(0, now)
        now += HALF_LIFE_S
    assert histogram.at(now) == [pytest.approx(1.0)]
    after = DecayingHistogram(0.0, [8.0])
    now = 11 * HALF_LIFE_S
    assert REBASE < 2**11
    after.add(0, now)
    assert after.at(now) == [pytest.approx(1.0 + 8.0 / 2**11)]


@pytest.mark.parametrize("begin", [0.0, 11 * HALF_LIFE_S])
def test_a_result_is_calculated_again_when_new_observations_matter(begin: float) -> None:
    total = 100.0 * 2 ** (begin / HALF_LIFE_S)  # 100 of those that are made at the beginning
    calculating = Calculating(DecayingHistogram(0.0, [total]))
    calculating.result(now=begin)
    share = 0
    while calculating.times == 1:
        calculating.histogram.add(0, begin)
        share += 1
        calculating.result(now=begin)
    assert (share - 1) / (100 + share - 1) <= REFRESH_SHARE < share / (100 + share)


def test_a_result_is_kept_while_it_is_fresh_and_the_price_is_alike() -> None:
    for price_s, now, times in (
        (10.0, 0.0, 1),
        (10.0, REFRESH_S - 1, 1),
        (10.0, REFRESH_S, 2),
        (10.0 * (1 + PRICE_TOLERANCE), 0.0, 1),
        (10.0 * (1 - PRICE_TOLERANCE), 0.0, 1),
        (10.1 * (1 + PRICE_TOLERANCE), 0.0, 2),
        (9.9 * (1 - PRICE_TOLERANCE), 0.0, 2),
    ):
        calculating = Calculating(DecayingHistogram(0.0, [1.0]))
        assert calculating.result() == 10.0
        calculating.result(price_s, now)
        assert calculating.times == times, (price_s, now)


def test_each_case_has_its_result() -> None:
    calculating = Calculating(DecayingHistogram(0.0, [1.0]))
    calculating.result()
    assert calculating.result(20.0, case=True) == 20.0
    assert (calculating.result(), calculating.times) == (10.0, 2)
