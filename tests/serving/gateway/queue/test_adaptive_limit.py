"""The learnt number of slots, on replicas whose knee is known."""

from __future__ import annotations

import random

import pytest

from hotplate.serving.gateway.protocol.routes import FIRST_SLOTS
from hotplate.serving.gateway.queue.adaptive_limit import (
    MOST,
    AdaptiveLimit,
    Mark,
)
from tests.support.gateway.knees import Batching, Line, Sharing, load

COUNTED = 600
"""Requests that are counted, after those in which it is to be learnt."""


def learnt_by(knee: int) -> int:
    """After so many requests the number is there."""
    return 200 + 10 * knee


@pytest.mark.parametrize(
    ("replica", "first", "least", "clients", "limits"),
    [
        pytest.param(
            Line(1),
            FIRST_SLOTS,
            1,
            64,
            "0:32 48:15 94:3 123:1 174:2 189:1 221:2 236:1 300:2 315:1 443:2 458:1 586:2 601:1",
            id="down in three trials, and then up by one after ever longer pauses",
        ),
        pytest.param(
            Line(1),
            FIRST_SLOTS,
            4,
            64,
            "0:32 48:15 94:4 163:6 182:4 214:6 233:4 297:6 316:4 444:6",
            id="down to the least",
        ),
        pytest.param(
            Sharing(4),
            FIRST_SLOTS,
            1,
            64,
            "0:32 48:15 94:3 123:1 139:3 160:1 176:3 192:4 209:8 230:4 251:1 268:4 300:6 319:4",
            id="down below the knee and up to it",
        ),
        pytest.param(
            Line(4),
            1,
            1,
            64,
            "0:1 33:2 48:4 65:8 86:4 107:1 124:4 156:6 211:4 275:6",
            id="up in doubled steps beyond the knee and back",
        ),
        pytest.param(
            Sharing(40),
            FIRST_SLOTS,
            1,
            2000,
            "0:32 48:15 93:32 135:48 197:40 261:19 314:40 365:60 441:40 517:60 593:40",
            id="to a knee between two trials",
        ),
        pytest.param(
            Batching(8),
            FIRST_SLOTS,
            1,
            64,
            "0:32 48:15 93:18 125:8 176:11 201:5 225:11 248:16 388:13 517:12 545:5 570:8",
            id="to and fro where there is no edge",
        ),
        pytest.param(
            Sharing(36),
            FIRST_SLOTS,
            1,
            2000,
            "0:32 48:15 93:32 135:48 197:36 260:72 352:36 439:17 488:36 534:54 603:36",
            id="to a knee a little above, which is tried first",
        ),
        pytest.param(
            Sharing(5),
            1,
            1,
            64,
            "0:1 33:2 48:4 65:8 86:4 107:1 124:4 156:6 175:5 196:2 214:5 232:8 253:5 285:8",
            id="up by one, which is a quarter",
        ),
        pytest.param(
            Sharing(4),
            4,
            1,
            64,
            "0:4 20:1 37:4 54:6 73:4 105:6 124:4 188:6 207:4",
            id="down and up from the knee",
        ),
        pytest.param(
            Sharing(20),
            20,
            1,
            64,
            "0:20 36:9 69:20 100:30 140:20 183:30 223:20 287:30 327:20 455:30 495:20 655:30 695:20",
            id="after pauses of eight times the limit at most",
        ),
        pytest.param(
            Sharing(4, 1.0, 3),
            FIRST_SLOTS,
            1,
            64,
            "0:32 82:7 129:1 149:7 173:1 193:7 216:10 349:7 381:10 511:7 575:10 598:7 726:10 855:7",
            id="further down and for longer where requests differ in length",
        ),
        pytest.param(
            Sharing(24, 0.3, 0),
            FIRST_SLOTS,
            1,
            64,
            "0:32 57:15 220:32 266:7 311:32 353:48",
            id="further down after a trial that was not sure",
        ),
        pytest.param(
            Sharing(10_000),
            8,
            1,
            30,
            "0:8 24:3 45:8 66:12 90:24 125:48 168:30 213:14 256:30 1238:14 1281:30",
            id="as far as there is demand, and down again a thousand requests later",
        ),
        pytest.param(
            Sharing(10_000),
            600,
            1,
            3000,
            "0:600 900:297 1625:600 2394:900 3548:1000 4831:496 6041:1000",
            id="to the most",
        ),
    ],
)
def test_a_trial_takes_only_as_many_responses_as_it_needs(
    replica: Sharing, first: int, least: int, clients: int, limits: str
) -> None:
    """`48:15` is a limit of 15 from the 48th response on."""
    limit = AdaptiveLimit(first, least)
    found = [f"0:{limit.limit}"]

    def note(done: int) -> None:
        if limit.limit != int(found[-1].partition(":")[2]):
            found.append(f"{done}:{limit.limit}")

    last = int(limits.split()[-1].partition(":")[0])
    load(replica, limit, last, clients=clients, at=note)
    assert " ".join(found) == limits


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
