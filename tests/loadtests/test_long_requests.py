"""Requests that are longer than any before: nobody waits for much longer than a cold start."""

from __future__ import annotations

import pytest

from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.autoscaler.simulator.outcome import Outcome
from hotplate.autoscaler.simulator.policies import Setup, simulate
from loadtests.long_requests import COLD_START_S, LONG, among_short, ten_times

MOST_S = 110.0
"""The bound of the p99 of the wait."""


def simulated(trace: RequestTrace, policy: str = "ours", slots: int = 1) -> Outcome:
    outcome, _ = simulate(policy, {"chat": trace}, Setup(COLD_START_S, slots))
    return outcome


@pytest.mark.parametrize("name", LONG)
def test_long_requests_wait_for_little_more_than_a_start(name: str) -> None:
    """With no more starts than a rule has that starts a replica for every request."""
    trace = LONG[name]()
    ours, each = simulated(trace), simulated(trace, "modal-idle")
    assert ours.wait_s.p99 <= MOST_S
    assert ours.starts <= each.starts
    assert ours.gpu_hours.total <= 1.02 * each.gpu_hours.total


@pytest.mark.parametrize("every_s, short_s", [(0.5, 1.0), (2.0, 1.0), (5.0, 4.0), (10.0, 2.0)])
@pytest.mark.parametrize("apart_s", [0.0, 5.0])
def test_it_does_not_depend_on_the_stream_that_they_come_into(
    every_s: float, short_s: float, apart_s: float
) -> None:
    assert simulated(among_short(every_s, short_s, apart_s)).wait_s.p99 <= MOST_S


@pytest.mark.parametrize(
    "every_s, short_s, slots",
    [(10.0, 4.0, 1), (5.0, 4.0, 1), (60.0, 20.0, 1), (10.0, 8.0, 1), (1.0, 4.0, 8)],
)
def test_it_does_not_depend_on_how_busy_the_service_was(
    every_s: float, short_s: float, slots: int
) -> None:
    assert simulated(ten_times(every_s, short_s), slots=slots).wait_s.p99 <= MOST_S


def test_one_connection_that_stays_starts_nothing() -> None:
    """It has one of four slots; three of the others are enough for what comes in threes."""
    bursts = [(at + 0.01 * n, 1.0) for at in range(600, 90000, 600) for n in range(5)]
    requests = [(0.0, 100000.0), *bursts]
    trace = RequestTrace("", [at for at, _ in requests], [length_s for _, length_s in requests])
    outcome = simulated(trace, slots=4)
    assert outcome.starts == 1
