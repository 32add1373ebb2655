from __future__ import annotations

import math
import pickle
import random

import pytest

from hotplate.autoscaler.rules.windows import Delayed, WindowMean, WindowMin


def test_the_mean_weighs_values_by_the_time_they_held() -> None:
    window = WindowMean(6.0)
    window.record(0, 100.0)
    window.record(10, 104.0)
    window.record(4, 105.0)
    assert window.mean(106.0) == pytest.approx((10 * 1 + 4 * 1) / 6)


def test_the_mean_is_exactly_the_value_once_it_has_held_for_the_span() -> None:
    window = WindowMean(6.0)
    window.record(3, 50.0)
    assert window.mean(55.9) < 3
    assert window.settled_at == 56.0
    assert window.mean(56.0) == 3
    assert window.mean(5_000_000.0) == 3


def test_a_mean_of_what_has_ended_falls_to_a_figure_when_it_says() -> None:
    window = WindowMean(6.0)
    window.record(10, 1.0)
    window.record(4, 2.0)
    window.record(0, 5.0)
    window.record(1, 7.0)
    window.record(0, 7.0)
    assert window.falls_to(5.0) == -math.inf
    assert window.falls_to(3.0) == pytest.approx(7.4)
    assert window.falls_to(2.0) == pytest.approx(8.0)
    assert window.falls_to(0.0) == 11.0
    assert window.mean(8.0) == pytest.approx(2.0)


def test_the_oldest_bucket_counts_for_what_of_it_is_inside() -> None:
    window = WindowMean(6.0)
    window.record(10, 1.0)
    window.record(0, 10.0)
    assert window.mean(13.05) == pytest.approx(10 * 2.95 / 6)


def test_the_mean_follows_a_brute_force_mean_within_one_bucket() -> None:
    rng = random.Random(7)
    window, steps, now = WindowMean(6.0), [(0.0, 0)], 1000.0
    for _ in range(500):
        now += rng.choice([0.0, 0.01, 0.3, 2.0, 20.0]) * rng.random()
        steps.append((now, rng.randrange(20)))
        window.record(steps[-1][1], now)
        asked = now + rng.random()
        ends = [at for at, _ in steps[1:]] + [asked]
        area = sum(
            value * max(0.0, min(end, asked) - max(at, asked - 6.0))
            for (at, value), end in zip(steps, ends, strict=True)
        )
        assert window.mean(asked) == pytest.approx(area / 6.0, abs=20 * 0.1 / 6.0)
        now = asked


def test_before_the_first_value_the_mean_is_nothing() -> None:
    window = WindowMean(6.0)
    assert window.mean(1.0) == 0.0
    window.record(12, 1.0)
    assert window.mean(2.0) == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(5))
def test_when_a_mean_will_fall_is_when_it_falls(seed: int) -> None:
    rng = random.Random(seed)
    window, now = WindowMean(6.0), 0.0
    for value in (*(rng.randrange(10) for _ in range(20)), 0):
        now += rng.random() * 2
        window.record(value, now)
    reached = 0
    for step in range(60):
        mean = step / 10
        at = window.falls_to(mean)
        if at <= now:
            assert window.mean(now) <= mean
            continue
        for when, passed in ((at - 0.01, False), (at + 0.01, True)):
            later = pickle.loads(pickle.dumps(window))
            assert (later.mean(when) < mean) is (passed and mean > 0.0)
        reached += 1
    assert reached > 2


def test_the_mean_forgets_what_has_left_its_span_though_nobody_asks() -> None:
    window, least = WindowMean(15.0), WindowMin(15.0, 0)
    for second in range(1000):
        window.record(second % 2, float(second))
        least.record(second % 2, float(second))
    assert len(pickle.dumps(window)) < 1000
    assert len(pickle.dumps(least)) < 1000


def test_the_minimum_rises_when_the_low_value_leaves_the_window() -> None:
    window = WindowMin(30.0, 1)
    window.record(5, 100.0)
    assert window.min(129.0) == 1
    assert window.rises_above(1) == 130.0
    assert window.min(130.0) == 5
    assert window.rises_above(5) == math.inf


def test_the_minimum_equals_a_brute_force_minimum() -> None:
    rng = random.Random(3)
    window, steps, now = WindowMin(10.0, 4), [(-100.0, 4)], 0.0
    for _ in range(500):
        now += rng.random() * 4
        steps.append((now, rng.randrange(9)))
        window.record(steps[-1][1], now)
        ends = [at for at, _ in steps[1:]] + [math.inf]
        inside = [v for (_, v), end in zip(steps, ends, strict=True) if end > now - 10.0]
        assert window.min(now) == min(inside)


@pytest.mark.parametrize("seed", range(5))
def test_when_the_minimum_will_rise_is_when_it_rises(seed: int) -> None:
    rng = random.Random(seed)
    window, now = WindowMin(10.0, 4), 0.0
    for _ in range(30):
        now += rng.random() * 2
        window.record(rng.randrange(9), now)
    last = window.min(now + 10.0)
    for value in range(9):
        at = window.rises_above(value)
        if value >= last:
            assert at == math.inf
        elif at == -math.inf:
            assert window.min(now) > value
        else:
            for when, risen in ((at - 0.01, False), (at, True)):
                later = pickle.loads(pickle.dumps(window))
                assert (later.min(when) > value) is risen


@pytest.mark.parametrize("seed", range(3))
def test_delayed_is_the_past(seed: int) -> None:
    rng = random.Random(seed)
    delayed, now, past = Delayed(3.0, 0, 0.0), 0.0, [(0.0, 0)]
    for _ in range(200):
        now += rng.random() * 2
        past.append((now, rng.randrange(3)))
        delayed.record(past[-1][1], now)
        in_force = [value for since, value in past if since + 3.0 <= now] or [0]
        assert delayed.value(now) == in_force[-1]
        changes_at = delayed.changes_at()
        if changes_at == math.inf:
            assert past[-1][1] == in_force[-1]
        else:
            assert changes_at > now
            assert changes_at in [since + 3.0 for since, _ in past]


def test_delayed_forgets_what_it_will_not_tell_though_nobody_asks() -> None:
    delayed = Delayed(15.0, 0, 0.0)
    for second in range(1000):
        delayed.record(second % 2, float(second))
    assert len(pickle.dumps(delayed)) < 2000


def test_delayed_tells_what_was_recorded_that_long_ago() -> None:
    delayed = Delayed(15.0, 2, 0.0)
    delayed.record(4, 10.0)
    delayed.record(8, 20.0)
    assert [delayed.value(t) for t in (24.9, 25.0, 34.9)] == [2, 4, 4]
    assert delayed.changes_at() == 35.0
    assert delayed.value(35.0) == 8
    assert delayed.changes_at() == math.inf
