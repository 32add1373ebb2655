"""Which requests are measured under a load, and what two loads say about the knee."""

from __future__ import annotations

import math

import pytest

from hotplate.serving.gateway.queue.load_times import (
    LEAST_VARIANCE,
    NO_GAIN,
    SLOW,
    SLOWER,
    STEEP,
    WINDOW,
    Cohort,
    LoadComparison,
    LoadTimes,
)


def times_of(*log_s: float, load: float = 1.0) -> LoadTimes:
    times = LoadTimes()
    for each in log_s:
        times.add(each, load)
    return times


def test_mean_and_variance_are_those_of_what_was_added() -> None:
    empty = LoadTimes()
    assert (empty.count, empty.mean, empty.variance, empty.load) == (0, 0.0, 0.0, 0.0)
    assert empty.error2 == LEAST_VARIANCE
    times = LoadTimes()
    for log_s, log_load in ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)):
        times.add(log_s, log_load)
    assert (times.count, times.mean, times.load) == pytest.approx((3, 3.0, 4.0))
    assert times.variance == pytest.approx(8 / 3)
    assert times.spread == pytest.approx(math.sqrt(8 / 3))
    assert times.error2 == pytest.approx((8 / 3 + LEAST_VARIANCE) / 3)


def test_the_newest_requests_count_most_after_a_while() -> None:
    times = times_of(*[0.0] * WINDOW)
    assert times.error2 == pytest.approx(LEAST_VARIANCE / WINDOW)
    times.add(float(WINDOW), 1.0)
    assert times.mean == pytest.approx(1.0)
    assert times.error2 == pytest.approx((times.variance + LEAST_VARIANCE) / WINDOW)


def cohort_of(first: int = 10, size: int = 20) -> Cohort:
    cohort = Cohort()
    assert not (cohort.is_open or cohort.is_complete)
    cohort.open(first, size)
    return cohort


def test_a_cohort_is_complete_when_nearly_all_have_ended_whichever_first() -> None:
    cohort = cohort_of()
    for number in range(10, 30):
        cohort.begin(number, 1.0)
    late = int(20 * SLOW)
    for ended, number in enumerate(range(29, 9 + late, -1), start=1):
        assert not cohort.is_complete
        assert cohort.end(number, 1.0)
        assert cohort.is_complete is (20 - ended <= late)
    cohort.close()
    assert not (cohort.is_open or cohort.is_complete)


@pytest.mark.parametrize(
    ("number", "counts"), [(9, False), (10, True), (29, True), (30, False), (31, False)]
)
def test_only_the_cohorts_own_requests_count_before_it_is_complete(
    number: int, counts: bool
) -> None:
    cohort = cohort_of()
    cohort.begin(10, 1.0)
    cohort.begin(29, 1.0)
    assert cohort.is_open
    assert cohort.end(number, 1.0) is counts


def test_behind_a_complete_cohort_all_count_and_the_slow_ones_only_once() -> None:
    cohort = cohort_of(size=1)
    cohort.begin(10, 1.0)
    assert not cohort.is_complete
    times = times_of(0.0)
    cohort.count_slow(times, 1.0 + math.e)
    assert (times.count, times.mean) == pytest.approx((2, 0.5))
    assert cohort.is_complete
    assert not cohort.end(10, 1.0)
    assert cohort.end(11, 2.0)
    assert not cohort.end(9, 0.0)


def test_a_request_that_has_not_ended_counts_as_long_as_it_ran_or_as_the_mean() -> None:
    cohort = cohort_of()
    for number, begun_at in ((9, 0.0), (10, 1.0), (11, 3.0), (30, 9.0)):
        cohort.begin(number, begun_at)
    assert cohort.end(10, 1.0)
    times = times_of(0.0, load=5.0)
    cohort.count_slow(times, 3.0 + math.e)
    assert (times.count, times.mean, times.load) == pytest.approx((2, 0.5, 5.0))
    cohort.count_slow(times, 100.0)
    assert times.count == 2
    cohort.open(40, 5)
    cohort.begin(40, 0.0)
    times = times_of(7.0)
    cohort.count_slow(times, 1.0)
    assert times.mean == 7.0


@pytest.mark.parametrize(
    ("slower", "is_steep", "gains_nothing", "knee"),
    [
        (-0.2, False, False, 8.0),
        (0.0, False, False, 8.0),
        (0.39, False, False, 8 / math.exp(0.39)),
        (0.41, True, False, 8 / math.exp(0.41)),
        (math.log(2.0), True, True, 4.0),
        (0.9, True, True, 8 / math.exp(0.9)),
    ],
)
def test_a_knee_lies_where_more_load_gains_no_more(
    slower: float, is_steep: bool, gains_nothing: bool, knee: float
) -> None:
    low, high = (
        times_of(*[mean] * 4, load=load)
        for mean, load in ((1.0, math.log(4.0)), (1.0 + slower, math.log(8.0)))
    )
    found = LoadComparison(low, high)
    assert (found.is_steep, found.gains_nothing) == (is_steep, gains_nothing)
    assert found.knee == pytest.approx(knee)
    apart = math.log(2.0)
    error = math.sqrt(2 * LEAST_VARIANCE / 4)
    assert found.certainty == pytest.approx(abs(slower / apart - STEEP) * apart / error)


def test_requests_that_take_much_longer_are_not_worth_any_load() -> None:
    low, high = times_of(1.0, load=0.0), times_of(1.0 + SLOWER + 0.01, load=9.0)
    found = LoadComparison(low, high)
    assert found.is_steep
    assert not found.gains_nothing
    assert SLOWER / 9.0 < STEEP < NO_GAIN
