from __future__ import annotations

import pytest

from hotplate.autoscaler.simulator.arrivals import RequestTrace
from loadtests.price_sweep import OURS, frontier, hours_at, mixture_at, sweep

CURVE = [(1.0, 10.0), (2.0, 6.0), (6.0, 2.0)]
"""Mean wait in seconds, GPU-hours."""


@pytest.mark.parametrize(
    "wait_s, hours", [(0.9, None), (1.0, 10.0), (1.5, 8.0), (4.0, 4.0), (6.0, 2.0), (6.1, 2.0)]
)
def test_hours_are_read_between_neighbouring_prices(wait_s: float, hours: float | None) -> None:
    assert hours_at(CURVE, wait_s) == hours


def test_a_price_that_another_beats_in_both_is_none_that_anybody_sets() -> None:
    beaten = [(1.5, 10.0), (3.0, 6.5), (2.0, 6.0)]
    assert frontier([*beaten, *reversed(CURVE)]) == CURVE


@pytest.mark.parametrize(
    "wait_s, hours", [(0.9, None), (1.0, 10.0), (2.0, 6.0), (4.0, 4.0), (9.0, 2.0)]
)
def test_a_mixture_of_two_takes_the_least_that_waits_no_longer(
    wait_s: float, hours: float | None
) -> None:
    dear = (2.0, 9.0)
    assert mixture_at([(6.0, 2.0), dear, *CURVE[:2]], wait_s) == hours


def test_a_sweep_compares_each_peer_at_its_wait_and_each_price_beside_a_mixture() -> None:
    trace = {"m": RequestTrace("o", [200.0 * turn for turn in range(50)], [10.0] * 50)}
    lines = sweep(trace, 20.0, prices=(75.0, 4800.0))
    ours = [line for line in lines if line.policy.startswith(OURS)]
    assert [line.policy for line in ours] == ["ours, price 75", "ours, price 4800"]
    assert ours[0].gpu_hours is not None and ours[1].gpu_hours is not None
    assert ours[0].gpu_hours < ours[1].gpu_hours
    assert all(line.saved_percent is None for line in ours)
    peers = [line for line in lines if line not in ours]
    assert len(peers) == 6
    assert any(line.saved_percent is not None for line in peers)
    assert all(line.beside_mixture_percent is None for line in peers)
