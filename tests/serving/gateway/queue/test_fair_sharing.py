from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hotplate.serving.gateway.queue.ticket import OVERTAKEN_MOST, STARVING_S
from tests.serving.gateway.queue.contest import Contest, Crowd

SERVICE_S = 0.05


def about_50_ms(rng: random.Random) -> float:
    return SERVICE_S * rng.uniform(0.97, 1.1)


def any_time(rng: random.Random) -> float:
    return rng.expovariate(1 / SERVICE_S)


def one_second(rng: random.Random) -> float:
    return rng.uniform(0.9, 1.1)


def short_or_long(rng: random.Random) -> float:
    return 0.5 if rng.random() < 0.05 else 0.026


def ideal_wait_s(clients: int, part: float, service_s: float, slots: int = 2) -> float:
    """Closed-loop clients that get this part of the slots, and nothing else to wait for."""
    return clients * service_s / (part * slots) - service_s


@pytest.mark.parametrize("service_s", [lambda rng: SERVICE_S, about_50_ms, any_time])
def test_a_small_organization_waits_as_if_the_large_one_had_its_half_only(
    service_s: Callable[[random.Random], float],
) -> None:
    contest = Contest([Crowd("large", 190, service_s), Crowd("small", 10, service_s)])
    large, small = contest.run(40, warm_up_s=10)
    mean_s = small.slot_s / len(small.waits_s)
    assert small.wait_s <= 1.2 * ideal_wait_s(10, 0.5, mean_s)
    assert large.good + small.good >= 0.97 * 40 * 2 / mean_s, "slots stood idle"
    assert contest.most_running == 2


@pytest.mark.parametrize(("crowds", "heavy"), [((190, 10), 0), ((190, 10), 1), ((100, 100), 1)])
def test_weights_of_three_to_one_give_three_to_one(crowds: tuple[int, int], heavy: int) -> None:
    names = ("a", "b")
    contest = Contest(
        [Crowd(name, clients, about_50_ms) for name, clients in zip(names, crowds, strict=True)],
        weights={names[heavy]: 3.0},
    )
    got = contest.run(40, warm_up_s=10)
    assert got[heavy].good / got[1 - heavy].good == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("slots", [2, 16])
def test_long_requests_buy_no_more_slot_time_than_short_ones(slots: int) -> None:
    contest = Contest([Crowd("long", 50, one_second), Crowd("short", 50)], slots=slots)
    long, short = contest.run(20, warm_up_s=5)
    assert long.slot_s / short.slot_s == pytest.approx(1.0, rel=0.05)


def test_few_clients_in_service_lose_no_share_and_save_none_up() -> None:
    crowds = [Crowd("many", 190, about_50_ms), Crowd("few", 2, about_50_ms)]
    many, few = Contest(crowds).run(40, warm_up_s=10)
    assert few.good / many.good == pytest.approx(1.0, rel=0.05)
    # One that was away for long gets its share from then on, and nothing for the time before.
    late = Contest([Crowd("many", 190), Crowd("late", 10, pause_s=30.0)])
    many, rare = late.run(90, warm_up_s=10)
    assert rare.wait_s <= 1.2 * ideal_wait_s(10, 0.5, SERVICE_S)
    assert many.slot_s + rare.slot_s == pytest.approx(180, rel=0.03)


@pytest.mark.parametrize("service_s", [lambda rng: SERVICE_S, about_50_ms, short_or_long])
def test_clients_that_leave_after_two_seconds_waste_hardly_a_slot(
    service_s: Callable[[random.Random], float],
) -> None:
    # Their clocks began when they sent, a little before the gateway's.
    crowd = Crowd("", 200, service_s, patience_s=1.995, pause_s=0.25)
    contest = Contest([crowd], timeout_s=2.0)
    (got,) = contest.run(20, warm_up_s=5)
    assert got.good / 20 >= 37
    assert contest.most_running == 2
    assert got.refused


def test_without_a_deadline_everybody_is_served_in_turn() -> None:
    (got,) = Contest([Crowd("", 200)]).run(20, warm_up_s=10)
    assert got.good / 20 >= 0.97 * 40
    assert got.refused == 0


@pytest.mark.parametrize("urgent", [20, 200])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_usual_request_is_never_behind_more_than_some_seconds_of_urgent_ones(
    urgent: int, slots: int
) -> None:
    """Urgent callers that come again at once, for ever: the usual one has its turn after
    `STARVING_S` and four turns, and three of four slots are still theirs while it waits."""
    crowds = [Crowd("a", urgent, priority=0), Crowd("a", 1, priority=3), Crowd("a", 1, priority=7)]
    urgent_ones, *others = Contest(crowds, slots=slots).run(120)
    turns_s = (OVERTAKEN_MOST + 1) * 2 * SERVICE_S / slots
    for got in others:
        assert len(got.waits_s) >= 120 // (STARVING_S + turns_s + SERVICE_S) - 1
        assert max(got.waits_s) <= STARVING_S + turns_s + 2 * SERVICE_S
    assert urgent_ones.good >= 0.95 * 120 * slots / SERVICE_S


def test_urgent_ones_go_first_while_many_have_waited_for_long() -> None:
    crowds = [Crowd("a", 2, priority=0), Crowd("a", 300, priority=3)]
    urgent, usual = Contest(crowds, slots=1).run(60, warm_up_s=20)
    assert max(urgent.waits_s) <= (OVERTAKEN_MOST + 1) * SERVICE_S
    assert urgent.good / usual.good >= 1.0
