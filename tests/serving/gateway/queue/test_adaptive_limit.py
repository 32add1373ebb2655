"""The learnt number of slots, on replicas whose knee is known."""

from __future__ import annotations

import random
from collections import deque

import pytest

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS
from hotplate.serving.gateway.queue.adaptive_limit import (
    LONG_STALL_S,
    MOST,
    SHORT_STALL_S,
    AdaptiveLimit,
    Mark,
)
from tests.support.gateway.knees import Batching, Line, Sharing, load

COUNTED = 600
"""Requests that are counted, after those in which it is to be learnt."""


def learnt_by(knee: int) -> int:
    """After so many requests the number is there."""
    return 200 + 10 * knee


@pytest.mark.parametrize("knee", [1, 4, 32, 300])
@pytest.mark.parametrize(
    ("replica", "noise"),
    [(Sharing, 0.0), (Sharing, 0.1), (Sharing, 0.2), (Line, 0.1), (Line, 0.2)],
)
def test_the_knee_is_found(replica: type[Sharing], knee: int, noise: float) -> None:
    seeds, good = 5, 0
    for seed in range(seeds):
        since = learnt_by(knee)
        shown = load(
            replica(knee, noise, seed),
            AdaptiveLimit(),
            since + max(COUNTED, 10 * knee),
            counted_from=since,
        )
        good += shown.per_s >= 0.9 * knee and shown.time_s <= 1.5
    assert good >= seeds - 1


@pytest.mark.parametrize(("before", "after"), [(32, 4), (4, 32), (1, 32), (32, 300)])
def test_a_knee_that_moves_is_followed(before: int, after: int) -> None:
    replica = Sharing(before, 0.1)
    moves_at = learnt_by(before) + COUNTED
    since = moves_at + learnt_by(after)

    def move(done: int) -> None:
        if done == moves_at:
            replica.knee = after

    requests = since + max(COUNTED, 10 * after)
    shown = load(replica, AdaptiveLimit(), requests, counted_from=since, at=move)
    assert shown.per_s >= 0.9 * after
    assert shown.time_s <= 1.5


def test_it_is_kept_for_long() -> None:
    shown = load(Sharing(4, 0.2), AdaptiveLimit(), 20_000, counted_from=2000)
    assert shown.per_s >= 0.9 * 4
    assert shown.time_s <= 1.5
    assert shown.most <= 6


def test_what_blocks_its_loop_is_at_two_at_most_from_then_on() -> None:
    limit = AdaptiveLimit()
    shown = load(Line(1, 0.02), limit, 3000, clients=16, counted_from=150)
    assert shown.most <= 2
    assert shown.per_s >= 0.97


def test_requests_that_only_sleep_are_never_held_back() -> None:
    shown = load(Sharing(10_000), AdaptiveLimit(), 5000, clients=30)
    assert shown.most == FIRST_SLOTS
    assert shown.per_s >= 0.95 * 30


def test_bursts_that_end_are_never_held_up_for_a_trial() -> None:
    limit = AdaptiveLimit()
    for burst in range(50):
        marks = [limit.begin(2.0 * burst) for _ in range(30)]
        for mark in marks:
            limit.end(2.0 * burst, mark, 2.0 * burst + 1.9, waiting=False)
            assert limit.limit == FIRST_SLOTS


def test_a_trial_of_more_at_once_outlives_the_pauses_between_bursts() -> None:
    replica, limit = Sharing(10_000), AdaptiveLimit(1)
    for _ in range(4):
        waiting, begun = 25, dict[int, tuple[float, Mark]]()
        while waiting or begun:
            while waiting and len(begun) < limit.limit:
                begun[replica.add()] = replica.now, limit.begin(replica.now)
                waiting -= 1
            limit.end(*begun.pop(replica.end()), replica.now, waiting=waiting > 0)
        assert limit.limit >= limit.learnt
    assert limit.learnt >= 4


def test_batches_without_an_edge_keep_more_than_half_of_their_throughput() -> None:
    limit = AdaptiveLimit()
    shown = load(Batching(32, 0.2), limit, 20_000, counted_from=5000)
    assert shown.per_s >= 0.5 * 32
    assert limit.learnt >= 24


def test_it_is_never_lowered_below_what_batches_fill() -> None:
    limit = AdaptiveLimit(least=16)
    shown = load(Line(1, 0.1), limit, 2000, counted_from=500)
    assert limit.learnt == 16
    assert shown.most == 16
    assert AdaptiveLimit(least=100).learnt == FIRST_SLOTS


def test_what_was_learnt_before_is_where_it_begins() -> None:
    assert AdaptiveLimit(7).limit == 7
    assert AdaptiveLimit(5000).limit == MOST
    assert AdaptiveLimit(0).limit == 1


def test_cold_first_requests_teach_nothing() -> None:
    limit = AdaptiveLimit()
    marks = [limit.begin(0.0) for _ in range(32)]
    for mark in marks:
        limit.end(0.0, mark, 30.0, waiting=True)
    replica = Sharing(10_000)
    replica.now = 30.0
    shown = load(replica, limit, 4000, clients=200, counted_from=2000)
    assert shown.per_s >= 0.9 * 200


def test_failures_teach_nothing() -> None:
    limit = AdaptiveLimit()
    for number in range(1000):
        mark = limit.begin(float(number))
        limit.drop(float(number), mark, number + 0.001, waiting=False)
    assert limit.limit == FIRST_SLOTS
    assert load(Line(1, 0.1), limit, 400, clients=16).most == FIRST_SLOTS
    assert limit.learnt <= 2


def test_a_trial_in_which_all_fail_is_given_up() -> None:
    limit = AdaptiveLimit()
    now, running = 0.0, deque[tuple[float, Mark]]()

    def go_on() -> tuple[float, Mark]:
        nonlocal now
        while len(running) < limit.limit:
            running.append((now, limit.begin(now)))
        now += 0.01
        return running.popleft()

    while limit.limit == limit.learnt:
        limit.end(*go_on(), now, waiting=True)
    for _ in range(300):
        limit.drop(*go_on(), now, waiting=True)
    assert limit.limit == limit.learnt == FIRST_SLOTS


@pytest.mark.parametrize("failing", [0.5, 0.9])
@pytest.mark.parametrize("knee", [1, 10_000])
def test_between_failures_the_knee_is_found(failing: float, knee: int) -> None:
    replica, limit, chance = Sharing(knee, 0.1), AdaptiveLimit(), random.Random(1)
    waiting, begun = 64, dict[int, tuple[float, Mark]]()
    for _ in range(2000):
        while waiting and len(begun) < limit.limit:
            begun[replica.add()] = replica.now, limit.begin(replica.now)
            waiting -= 1
        begun_at, mark = begun.pop(replica.end())
        ended = limit.drop if chance.random() < failing else limit.end
        ended(begun_at, mark, replica.now, waiting=waiting > 0)
        waiting += 1
    assert limit.learnt <= 2 if knee == 1 else limit.learnt > FIRST_SLOTS


def test_answers_that_go_on_and_on_are_no_load() -> None:
    limit = AdaptiveLimit(2)
    for _ in range(2):
        limit.begin(0.0)
    assert not limit.grow_if_stalled(0.9)
    assert limit.grow_if_stalled(1.0)
    assert limit.limit == 3
    limit.begin(1.0)
    assert not limit.grow_if_stalled(1.9)
    assert limit.grow_if_stalled(2.0)
    assert limit.learnt == 4


def test_sockets_that_come_and_go_are_no_reason_for_more_of_them() -> None:
    limit = AdaptiveLimit(2)
    marks = [limit.begin(0.0), limit.begin(0.0)]
    for at in (0.9, 1.8, 2.7, 3.6):
        limit.drop(0.0, marks.pop(), at, waiting=True)
        marks.append(limit.begin(at))
        assert not limit.grow_if_stalled(at + 0.8)


def test_a_trial_whose_load_has_gone_is_given_up() -> None:
    limit = AdaptiveLimit()
    tried: list[bool] = []
    load(
        Line(1, 0.1),
        limit,
        60,
        clients=16,
        at=lambda done: tried.append(limit.limit < limit.learnt),
    )
    assert tried[-1]
    assert limit.limit == limit.learnt


def in_turn(limit: AdaptiveLimit, took_s: float, count: int, now: float) -> float:
    """So many requests, as many at once as may be, each of which takes as long; others wait."""
    running = deque((now, limit.begin(now)) for _ in range(limit.limit))
    for _ in range(count):
        now += took_s / len(running)
        begun_at, mark = running.popleft()
        limit.end(begun_at, mark, now, waiting=True)
        while len(running) < limit.limit:
            running.append((now, limit.begin(now)))
    for begun_at, mark in running:
        limit.drop(begun_at, mark, now, waiting=True)
    return now


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
    now = in_turn(limit, took_s, 12, 0.0)
    assert limit.limit == 4
    assert not limit.grow_if_stalled(now + 0.97 * stall_s)
    assert limit.grow_if_stalled(now + 1.03 * stall_s)


def test_a_request_that_failed_is_a_sign_of_life() -> None:
    limit = AdaptiveLimit(4)
    mark = limit.begin(0.0)
    limit.drop(0.0, mark, 5.0, waiting=True)
    assert not limit.grow_if_stalled(5.0 + SHORT_STALL_S - 0.01)
    assert limit.grow_if_stalled(5.0 + SHORT_STALL_S)
