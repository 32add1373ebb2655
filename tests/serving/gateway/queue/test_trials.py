"""How a limit tries another number of slots, response by response."""

from __future__ import annotations

from collections import deque

import pytest

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS
from hotplate.serving.gateway.queue.adaptive_limit import (
    LONG_STALL_S,
    MOST,
    OVERLONG,
    SHORT_STALL_S,
    AdaptiveLimit,
    Mark,
)
from hotplate.serving.gateway.queue.baseline import ENOUGH


class Busy:
    """A replica that ends its requests in the order in which they began; others wait."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit, self.now = limit, 0.0
        self.running: deque[tuple[float, Mark]] = deque()
        self.endless = 0

    def fill(self, most: int = MOST) -> None:
        """As many run as may, or so many."""
        while len(self.running) + self.endless < min(self.limit.limit, most):
            self.running.append((self.now, self.limit.begin(self.now)))

    def hang(self) -> None:
        """The newest one never ends."""
        self.running.pop()
        self.endless += 1

    def answer(self, took_s: float, *, most: int = MOST) -> None:
        """The next one ends; each takes so long. There are no more than `most`."""
        self.fill(most)
        self.now += took_s / len(self.running)
        waiting = most >= self.limit.limit
        self.limit.end(*self.running.popleft(), self.now, waiting=waiting)

    def next_limits(self, count: int) -> list[int]:
        """Goes on until the limit has changed so often."""
        found = [self.limit.limit]
        for _ in range(2000):
            self.answer(1.0)
            if self.limit.limit != found[-1]:
                found.append(self.limit.limit)
            if len(found) > count:
                break
        return found[1:]

    def fail(self, *, waiting: bool = True) -> None:
        """The next one fails."""
        self.limit.drop(*self.running.popleft(), self.now, waiting=waiting)


@pytest.mark.parametrize(
    ("learnt", "least", "first"), [(0, 1, 1), (1, 1, 1), (7, 4, 7), (MOST + 1, 1, MOST)]
)
def test_it_begins_within_its_bounds(learnt: int, least: int, first: int) -> None:
    limit = AdaptiveLimit(learnt, least)
    assert (limit.limit, limit.learnt) == (first, first)


@pytest.mark.parametrize(
    ("learnt", "grown"), [(1, 2), (5, 6), (10, 11), (100, 110), (MOST - 1, MOST), (MOST, None)]
)
def test_a_stall_grows_the_limit_by_a_tenth(learnt: int, grown: int | None) -> None:
    limit = AdaptiveLimit(learnt)
    limit.begin(100.0)
    assert not limit.grow_if_stalled(100.0 + SHORT_STALL_S - 0.01)
    assert limit.grow_if_stalled(100.0 + SHORT_STALL_S) is (grown is not None)
    assert limit.limit == limit.learnt == (grown or learnt)
    if grown:
        assert not limit.grow_if_stalled(100.0 + 2 * SHORT_STALL_S - 0.01)


@pytest.mark.parametrize(
    ("took_s", "stall_s"), [(0.1, SHORT_STALL_S), (1.0, 4.0), (9.0, LONG_STALL_S)]
)
def test_a_stall_is_four_times_the_usual_time(took_s: float, stall_s: float) -> None:
    limit = AdaptiveLimit(4)
    busy = Busy(limit)
    for _ in range(12):
        busy.answer(took_s)
    assert limit.limit == 4
    assert not limit.grow_if_stalled(busy.now + 0.97 * stall_s)
    assert limit.grow_if_stalled(busy.now + 1.03 * stall_s)


def test_a_request_that_failed_is_a_sign_of_life() -> None:
    limit = AdaptiveLimit(4)
    mark = limit.begin(0.0)
    limit.drop(0.0, mark, 5.0, waiting=True)
    assert not limit.grow_if_stalled(5.0 + SHORT_STALL_S - 0.01)
    assert limit.grow_if_stalled(5.0 + SHORT_STALL_S)


def in_trial_down() -> tuple[AdaptiveLimit, Busy]:
    """A limit that tries less than was learnt."""
    limit = AdaptiveLimit()
    busy = Busy(limit)
    assert busy.next_limits(1) == [15]
    return limit, busy


GIVEN_UP = OVERLONG * (15 + FIRST_SLOTS + ENOUGH)
"""Ends after which that trial is given up."""


def test_a_trial_in_which_all_fail_is_given_up() -> None:
    limit, busy = in_trial_down()
    for _ in range(GIVEN_UP):
        busy.fill()
        busy.fail()
        assert limit.limit == 15
    busy.fill()
    busy.fail()
    assert limit.limit == limit.learnt == FIRST_SLOTS


def test_a_trial_in_which_some_requests_never_end_is_given_up() -> None:
    limit, busy = in_trial_down()
    until_cohort = FIRST_SLOTS - 15
    for _ in range(until_cohort + 3):
        busy.answer(0.1)
    for _ in range(3):
        busy.hang()
    for _ in range(until_cohort + 3, GIVEN_UP):
        busy.answer(0.1)
        assert limit.limit == 15
    busy.answer(0.1)
    assert limit.limit == limit.learnt == FIRST_SLOTS


@pytest.mark.parametrize(
    ("stopped_s", "tried"), [(0.0, 300), (1e2, 99), (1e4, 63), (1e6, 35), (1e12, 12)]
)
def test_the_longer_requests_take_than_before_the_less_is_tried(
    stopped_s: float, tried: int
) -> None:
    """A replica that stops once and for so long: to half as many, to a sixteenth at most."""
    limit = AdaptiveLimit(200)
    busy = Busy(limit)
    assert busy.next_limits(2) == [99, 200]
    for _ in range(100):  # until those run that are measured
        busy.answer(1.0)
    busy.now += stopped_s
    assert busy.next_limits(1) == [tried]


@pytest.mark.parametrize(("failing", "tried"), [(0, 8), (10, 12), (20, 16)])
def test_a_load_is_measured_while_others_come_and_fail(failing: int, tried: int) -> None:
    """Ten requests come each second, and end 1.5 s later: fifteen run at once. Others fail after
    0.75 s."""
    limit = AdaptiveLimit(64)
    running = [(0.0, limit.begin(0.0)) for _ in range(10)]
    for second in range(1, 100):
        at = float(second)
        begun = [(at, limit.begin(at)) for _ in range(10)]
        failed = [(at, limit.begin(at)) for _ in range(failing)]
        for one in running:
            limit.end(*one, at + 0.5, waiting=False)
        for one in failed:
            limit.drop(*one, at + 0.75, waiting=False)
        running = begun
        if limit.limit != limit.learnt:
            break
    assert limit.limit == tried


def test_a_trial_is_given_up_where_there_is_no_more_load_than_before() -> None:
    limit = AdaptiveLimit(4)
    busy = Busy(limit)
    assert busy.next_limits(3) == [1, 4, 6]
    for _ in range(2 * ENOUGH):
        busy.answer(1.0, most=4)
    assert limit.limit == limit.learnt == 4


def test_a_trial_of_less_at_once_ends_with_its_load_also_if_the_last_one_failed() -> None:
    limit, busy = in_trial_down()
    while len(busy.running) > 1:
        busy.fail()
    assert limit.limit < limit.learnt
    busy.fail(waiting=False)
    assert limit.limit == limit.learnt == FIRST_SLOTS
