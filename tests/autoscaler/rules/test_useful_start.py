from __future__ import annotations

import pytest

from hotplate.autoscaler.policy import Demand, Replicas
from hotplate.autoscaler.rules.useful_start import (
    StartPace,
    late_requests,
    requests_begun,
    sufficient_replicas,
    useful_starts,
)


def test_a_free_slot_begins_one_request_more_than_it_can_finish() -> None:
    pace = StartPace(concurrency=1, service_s=5.0, cold_start_s=10.0)  # horizon 12.5 s: at 0, 5, 10
    assert requests_begun(Demand(), Replicas(ready=1), pace, 0.0) == 3


def test_busy_slots_come_free_at_one_even_pace() -> None:
    pace = StartPace(concurrency=4, service_s=10.0, cold_start_s=10.0)
    assert requests_begun(Demand(in_flight=4), Replicas(ready=1), pace, 0.0) == 5


def test_a_request_longer_than_the_horizon_frees_nothing() -> None:
    pace = StartPace(concurrency=1, service_s=30.0, cold_start_s=10.0)
    assert late_requests(Demand(1, 3), Replicas(ready=1), pace, 0.0) == 3
    assert useful_starts(3, pace) == 3


def test_short_requests_share_a_start() -> None:
    pace = StartPace(concurrency=1, service_s=1.0, cold_start_s=10.0)
    assert [useful_starts(late, pace) for late in (1, 10, 11)] == [1, 1, 2]


def test_long_requests_need_a_slot_each() -> None:
    assert useful_starts(9, StartPace(concurrency=4, service_s=60.0, cold_start_s=10.0)) == 3


@pytest.mark.parametrize("age_s, begun", [(0.0, 1), (10.0, 2), (1000.0, 2)])
def test_a_starting_replica_counts_from_when_it_is_due(age_s: float, begun: int) -> None:
    pace = StartPace(concurrency=1, service_s=10.0, cold_start_s=10.0)
    assert requests_begun(Demand(0, 5), Replicas(0, (0.0,)), pace, age_s) == begun


def test_no_more_replicas_are_enough_than_begin_what_is_held() -> None:
    pace, starting = StartPace(1, service_s=10.0, cold_start_s=10.0), Replicas(1, (0.0, 8.0, 4.0))
    found = [sufficient_replicas(Demand(1, held), starting, pace, 8.0) for held in range(6)]
    assert found == [1, 1, 2, 2, 3, 4]  # by 20.5 s each begins one, the first start two
