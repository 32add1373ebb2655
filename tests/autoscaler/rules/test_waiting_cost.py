from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.rules.useful_start import StartPace, useful_starts
from hotplate.autoscaler.rules.waiting_cost import (
    FEW_REQUESTS,
    LEAST_SAVED,
    price_at_level,
    saved_waiting_s,
    worthwhile_starts,
)

PACE = StartPace(concurrency=1, service_s=10.0, cold_start_s=20.0)


def test_the_first_replica_is_worth_the_price_and_each_next_one_less_down_to_a_quarter() -> None:
    prices = [price_at_level(level, PACE, 600.0) for level in range(1, 30)]
    assert prices[0] == 600.0
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] == 600.0 * LEAST_SAVED


def test_long_requests_make_the_next_replica_worth_as_much_as_the_first() -> None:
    assert saved_waiting_s(2, StartPace(1, 10_000.0, 20.0)) == pytest.approx(20.0, rel=0.01)


def test_more_slots_lose_more_with_their_replica() -> None:
    assert saved_waiting_s(2, StartPace(8, 5.0, 60.0)) > 1.3 * saved_waiting_s(
        2, StartPace(1, 5.0, 60.0)
    )


def starts(queued: int, price_s: float, pace: StartPace = PACE) -> int:
    return worthwhile_starts(Demand(1, queued, 10.0), Replicas(1), pace, price_s, 0.0, 19)


def test_more_is_started_for_a_higher_price_and_for_more_held_requests() -> None:
    by_price = [starts(8, price) for price in (0.0, 50.0, 100.0, 300.0, 3000.0)]
    assert by_price == sorted(by_price)
    assert (by_price[0], by_price[-1]) == (0, 4)
    by_queue = [starts(queued, 300.0) for queued in range(60)]
    assert by_queue == sorted(by_queue)


def test_no_more_starts_than_still_find_work_when_they_are_ready() -> None:
    short = StartPace(1, 0.1, 4.0)
    assert worthwhile_starts(Demand(0, 40, 0.1), Replicas(), short, 1e9, 0.0, 19) == 1
    assert worthwhile_starts(Demand(0, 41, 0.1), Replicas(), short, 1e9, 0.0, 19) == 2


def test_what_is_on_its_way_is_not_started_again() -> None:
    demand = Demand(1, 2, 10.0)
    first = worthwhile_starts(demand, Replicas(1), PACE, 3000.0, 0.0, 19)
    assert first == 1
    again = worthwhile_starts(demand, Replicas(1, (0.0,) * first), PACE, 3000.0, 1.0, 19)
    assert again == 0


@pytest.mark.parametrize(
    ("slots", "limits"),
    [
        # One replica is busy for very long: who waits in line i waits i times the service time
        # over the slots. The price at which each next start pays for itself:
        (1, (2.2222e-5, 8.5714e-5, 3e-4)),
        (2, (1.66667e-5, 7.5e-5, 6e-4)),
    ],
)
def test_a_start_pays_for_itself_where_the_line_gets_shorter_by_its_price(
    slots: int, limits: tuple[float, ...]
) -> None:
    pace = StartPace(slots, 1e6, 10.0)
    demand = Demand(slots, 2 * slots + 1, 1e6)
    for number, price_s in enumerate(limits):
        for factor, starts in ((0.999, number), (1.001, number + 1)):
            found = worthwhile_starts(demand, Replicas(1), pace, price_s * factor, 0.0, 19)
            assert found == starts, price_s
    assert worthwhile_starts(demand, Replicas(1), pace, 1.0, 0.0, 2) == 2


@pytest.mark.parametrize(
    ("level", "slots", "service_s", "saved_s"),
    [
        (0, 4, 10.0, 20.0),
        (1, 4, 10.0, 20.0),
        (2, 1, 1e9, 20.0),
        (2, 1, 10.0, 10.0 * (1 - math.exp(-2.0))),
        (3, 1, 10.0, 5.0 * (1 - math.exp(-4.0))),
        (2, 3, 2.0, 4.0 * (1 - math.exp(-5.0))),
        (9, 1, 1.0, 2.0),
    ],
)
def test_a_replica_saves_the_waiting_for_the_slots_of_the_others(
    level: int, slots: int, service_s: float, saved_s: float
) -> None:
    pace = StartPace(slots, service_s, 20.0)
    assert saved_waiting_s(level, pace) == pytest.approx(saved_s)
    assert price_at_level(level, pace, 600.0) == pytest.approx(30.0 * saved_s)


def test_free_slots_and_coming_replicas_serve_first() -> None:
    pace, price_s = StartPace(2, 1e6, 10.0), 1.0
    for in_flight, queued, replicas, starts in (
        (2, 4, Replicas(2), 1),
        (4, 4, Replicas(2), 2),
        (2, 4, Replicas(1, (0.0,)), 1),
        (2, 2, Replicas(1, (0.0,)), 0),
        (2, 2, Replicas(2), 0),
    ):
        demand = Demand(in_flight, queued, 1e6)
        assert worthwhile_starts(demand, replicas, pace, price_s, 0.0, 19) == starts


def saved_by_one_more_s(line: float, more: int, pace: StartPace, slots: int) -> float:
    """What one more start than `more` saves, where `line` requests still wait for `slots`: the
    i-th of them waits for i times the time in which one slot becomes free."""

    def waited_s(requests: float, slots: int) -> float:
        return requests * (requests + 1) / 2 * pace.service_s / slots if requests > 0 else 0.0

    line -= more * pace.concurrency
    if line <= 0:
        return 0.0
    if not slots + more:
        return math.inf
    slots += more * pace.concurrency
    return waited_s(line, slots) - waited_s(line - pace.concurrency, slots + pace.concurrency)


def by_definition(
    demand: Demand, replicas: Replicas, pace: StartPace, price_s: float, now: float, most: int
) -> int:
    """What `worthwhile_starts` finds: start by start, its price against what it saves."""
    slots, starting = pace.concurrency, len(replicas.starting_at)
    ready = replicas.ready * slots
    live = ready + starting * slots
    busy = math.ceil(demand.in_flight / slots)
    most = min(most, busy + useful_starts(demand.queued, pace) - replicas.live)
    waiting = demand.queued - max(0, ready - demand.in_flight) - starting * slots
    ages_s = (min(now - at, pace.cold_start_s) for at in replicas.starting_at)
    begun = (ready * pace.cold_start_s + slots * sum(ages_s)) / pace.service_s
    few = min(waiting, FEW_REQUESTS)
    for start in range(max(0, most)):
        saved_s = sum(
            math.exp(-begun)
            * begun**number
            / math.factorial(number)
            * saved_by_one_more_s(few - number, start, pace, live)
            for number in range(max(0, few))
        )
        if waiting > FEW_REQUESTS:
            mean_s = saved_by_one_more_s(waiting - begun, start, pace, live)
            saved_s = max(saved_s, mean_s)
        if price_s / pace.cold_start_s * saved_s <= pace.cold_start_s:
            return start
    return max(0, most) if waiting > 0 else 0


def test_what_is_worth_a_start_is_so_by_definition() -> None:
    rng = random.Random(1)
    found: Counter[int] = Counter()
    for _ in range(2000):
        pace = StartPace(rng.choice((1, 2, 5)), rng.choice((0.3, 3.0, 30.0)), 10.0)
        starting = tuple(rng.uniform(-15.0, 0.0) for _ in range(rng.choice((0, 0, 1, 2))))
        replicas = Replicas(rng.randrange(4), starting)
        demand = Demand(rng.randrange(9), rng.choice((0, 1, 3, 9, 21, 60)), 0.0)
        price_s, most = rng.choice((3.0, 30.0, 600.0)), rng.randrange(-1, 12)
        starts = worthwhile_starts(demand, replicas, pace, price_s, 0.0, most)
        assert starts == by_definition(demand, replicas, pace, price_s, 0.0, most)
        found[starts] += 1
    assert len(found) > 8
