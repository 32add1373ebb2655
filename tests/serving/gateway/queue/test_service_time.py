from __future__ import annotations

import math

import pytest

from hotplate.serving.gateway.queue.service_time import (
    ENOUGH,
    FRESH_S,
    PAUSE_S,
    WINDOW,
    ServiceTime,
)


def learnt(*times_s: float) -> ServiceTime:
    """After requests that took so long, the last of which ended at 0."""
    service = ServiceTime()
    for number, time_s in enumerate(times_s, start=1):
        service.learn(time_s, time_s, float(number - len(times_s)))
    return service


def test_nothing_is_known_before_a_request_has_ended_and_little_of_the_first() -> None:
    assert (ServiceTime().least_s, ServiceTime().mean_s) == (0.0, 0.0)
    first = learnt(8.0)
    assert (first.mean_s, first.least_s, first.least_work_s(10)) == (8.0, 0.0, 0.0)
    assert learnt(*[8.0] * ENOUGH).least_s == 8.0


def test_where_short_and_long_requests_mix_a_short_time_is_enough() -> None:
    mixed = learnt(*([0.01] * 2 + [2.0] * 8) * 5)
    assert mixed.least_s == 0.01
    assert mixed.fair_s == pytest.approx(0.011)
    assert mixed.least_work_s(5) < mixed.work_s(5)


def test_where_all_take_as_long_a_hair_less_is_not_enough_if_others_wait() -> None:
    alike = learnt(*[0.9, 0.95, 1.0, 1.05, 1.1] * 10)
    assert alike.least_s == 0.9
    assert alike.fair_s == pytest.approx(0.99)
    # One tenth above would refuse half of what can be in time if it went beyond the median.
    assert learnt(*[1.0] * 50).fair_s == 1.0


def test_a_stream_counts_until_its_first_byte() -> None:
    service = ServiceTime()
    for _ in range(ENOUGH):
        service.learn(30.0, 0.2, 0.0)
    assert (service.mean_s, service.least_s) == (30.0, 0.2)


def test_one_much_faster_request_says_that_things_have_changed() -> None:
    service = learnt(*[8.0] * WINDOW)
    service.learn(0.05, 0.05, 1.0)
    assert service.least_s == 0.05
    assert service.fair_s < 0.06


def test_what_is_old_is_held_against_nobody() -> None:
    service = learnt(1.0)
    assert service.is_fresh(FRESH_S)
    assert not service.is_fresh(FRESH_S + 0.1)
    assert not ServiceTime().is_fresh(0.0)


def test_a_slower_service_is_noticed() -> None:
    service = learnt(*[0.05] * WINDOW, *[1.0] * WINDOW)
    assert service.least_s == 1.0
    assert service.mean_s == pytest.approx(1.0, rel=0.01)


def test_of_very_many_requests_some_tell_enough() -> None:
    service = learnt(*[0.001] * (WINDOW + 1))
    for number in range(1000):
        service.learn(0.001, 0.001, number * 0.0001)
    assert service.seen < WINDOW + 30


def test_mean_and_spread_are_those_of_the_first_ten_and_fade_from_then_on() -> None:
    service = learnt(*[1.0, 3.0] * 5)
    assert service.mean_s == pytest.approx(2.0)
    assert service.work_s(3) == pytest.approx(6.0)
    assert service.least_work_s(4) == pytest.approx(8.0 - math.sqrt(4.0))
    assert service.least_work_s(0.01) == 0.0
    service.learn(12.0, 12.0, 1.0)
    assert service.mean_s == pytest.approx(3.0)


@pytest.mark.parametrize("count", range(1, ENOUGH + 1))
def test_few_requests_count_in_part(count: int) -> None:
    service, trust = learnt(*[9.0] * count), (count - 1) / (ENOUGH - 1)
    assert service.seen == count
    assert service.least_s == pytest.approx(9.0 * trust)
    assert service.fair_s == pytest.approx(9.0 * trust)
    assert service.least_work_s(2) == pytest.approx(18.0 * trust)


def test_the_low_quantile_is_of_the_newest_in_any_order() -> None:
    times_s = [float(n) for n in range(1, WINDOW + 21)]
    for order in (times_s, [*times_s[:20], *reversed(times_s[20:])]):
        service = learnt(*order)
        newest = sorted(order[-WINDOW:])
        low_s = newest[WINDOW // 10]
        assert service.least_s == low_s
        assert service.fair_s == pytest.approx(min(low_s * 1.1, newest[WINDOW // 2]))


def test_a_request_of_half_the_quantile_is_no_change_yet() -> None:
    for newest_s, least_s in ((4.0, 8.0), (3.9, 3.9)):
        service = learnt(*[8.0] * 50)
        service.learn(newest_s, newest_s, 1.0)
        assert service.least_s == least_s


@pytest.mark.parametrize(
    ("seen", "after_s", "is_sample"),
    [(WINDOW, 0.0, True), (WINDOW + 1, 0.0, False), (WINDOW + 1, PAUSE_S, True)],
)
def test_samples_that_come_fast_are_left_out_once_there_are_enough(
    seen: int, after_s: float, is_sample: bool
) -> None:
    service = learnt(*[1.0] * seen)
    service.learn(1.0, 1.0, after_s)
    assert service.seen == seen + is_sample
