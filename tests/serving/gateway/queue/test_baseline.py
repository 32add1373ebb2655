"""What a replica's usual load is, and when that is no longer known."""

from __future__ import annotations

import math

import pytest

from hotplate.serving.gateway.queue.baseline import (
    CHANGED,
    ENOUGH,
    FLAT,
    HALF,
    LOW_RUN,
    RECENT,
    Baseline,
)
from hotplate.serving.gateway.queue.load_times import LoadTimes

LOAD = math.log(8.0)


def baseline_of(count: int = ENOUGH, log_s: float = 1.0) -> Baseline:
    """After so many requests at one load."""
    baseline = Baseline()
    for _ in range(count):
        assert baseline.add(log_s, LOAD) is None
    return baseline


@pytest.mark.parametrize(("count", "usable"), [(0, False), (ENOUGH - 1, False), (ENOUGH, True)])
def test_a_load_is_known_after_enough_requests(count: int, usable: bool) -> None:
    baseline = baseline_of(count)
    assert baseline.is_usable is usable
    assert not baseline.is_settled
    assert baseline.times.count == count


def test_less_load_for_a_while_is_set_apart_and_then_the_usual_one() -> None:
    baseline = baseline_of()
    low = LOAD - HALF - 0.01
    for number in range(LOW_RUN):
        assert baseline.add(0.5, low) is None
        assert not baseline.is_usable
        assert baseline.times.count == ENOUGH, number
    assert baseline.add(0.5, low) == 0.0
    assert baseline.times.count == LOW_RUN + 1
    assert baseline.times.load == pytest.approx(low)
    assert baseline.is_usable


def test_half_the_load_is_still_the_usual_one() -> None:
    baseline = baseline_of()
    assert baseline.add(1.0, LOAD - HALF + 0.01) is None
    assert baseline.add(1.0, LOAD - 2 * HALF) is None
    assert not baseline.is_usable
    assert baseline.add(1.0, LOAD) is None
    assert baseline.is_usable, "the run was broken"


def test_more_load_is_the_usual_one_at_once_and_what_was_known_is_of_less() -> None:
    baseline = baseline_of()
    baseline.settled_mean = 1.0
    assert baseline.add(1.0, LOAD + HALF - 0.01) is None
    load = baseline.times.load
    assert baseline.add(1.0, load + HALF + 0.1) == 0.0
    assert math.isnan(baseline.settled_mean)
    assert baseline.times.count == 1
    for _ in range(ENOUGH):
        baseline.add(1.0, load + HALF + 0.1)
    assert baseline.is_settled, "less load took as long"


@pytest.mark.parametrize(
    ("slope", "low_count", "apart", "settled"),
    [
        (FLAT - 0.01, ENOUGH, 1.0, True),
        (FLAT + 0.01, ENOUGH, 1.0, False),
        (FLAT - 0.01, ENOUGH - 1, 1.0, False),
        (FLAT - 0.01, ENOUGH, HALF - 0.01, False),
        (FLAT - 0.01, ENOUGH, 2.0, True),
        (FLAT + 0.01, ENOUGH, 2.0, False),
    ],
)
def test_less_load_need_not_be_tried_where_it_took_as_long(
    slope: float, low_count: int, apart: float, settled: bool
) -> None:
    baseline, times, low = Baseline(), LoadTimes(), LoadTimes()
    for _ in range(ENOUGH):
        times.add(1.0 + slope * apart, apart)
    for _ in range(low_count):
        low.add(1.0, 0.0)
    baseline.replace(times, low)
    assert baseline.is_settled is settled
    baseline.settled_mean = 1.0
    assert baseline.is_settled


@pytest.mark.parametrize("sign", [1, -1])
def test_times_that_change_are_noticed_by_the_newest_few(sign: int) -> None:
    baseline = baseline_of()
    baseline.settled_mean = 1.0
    log_s = 1.0 + sign * 2.0
    slower, count = None, 0
    while slower is None:
        slower = baseline.add(log_s, LOAD)
        count += 1
    assert count <= RECENT
    assert sign * slower > CHANGED
    assert baseline.times.count == 0
    assert math.isnan(baseline.settled_mean)
    assert not baseline.is_usable


def test_a_change_is_noticed_after_enough_requests() -> None:
    for count, changed in ((ENOUGH - 1, False), (ENOUGH, True)):
        baseline = baseline_of(count)
        baseline.settled_mean = 0.0
        assert (baseline.add(1.0, LOAD) is not None) is changed


@pytest.mark.parametrize(("off", "changed"), [(CHANGED - 0.02, False), (CHANGED + 0.02, True)])
def test_a_small_change_is_none(off: float, changed: bool) -> None:
    baseline = baseline_of(200)
    baseline.settled_mean = 1.0 - off
    assert (baseline.add(1.0, LOAD) is not None) is changed
    unsettled = baseline_of(200)
    assert unsettled.add(1.0 + off, LOAD) is None, "nobody has compared"


def test_times_that_vary_have_to_change_by_more() -> None:
    baseline = Baseline()
    for number in range(200):
        baseline.add(float(number % 2), LOAD)
    limit = CHANGED + 3 * baseline.times.spread / math.sqrt(RECENT)
    mean = 0.5
    for off, changed in ((limit - 0.2, False), (limit + 0.2, True)):
        trial = Baseline()
        for number in range(200):
            trial.add(float(number % 2), LOAD)
        trial.settled_mean = mean - off
        assert (trial.add(mean, LOAD) is not None) is changed
