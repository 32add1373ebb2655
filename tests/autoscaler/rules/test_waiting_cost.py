from __future__ import annotations

import pytest

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.rules.useful_start import StartPace
from hotplate.autoscaler.rules.waiting_cost import (
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
