"""Replica-seconds and the series of replicas, of what was observed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.loadtest.observation import Observation
from hotplate.platform.loadtest.replica_time import by_step, replica_time
from hotplate.platform.loadtest.tally import Steps


def seen(
    at_s: float, ready: int, in_flight: int = 0, starting: int = 0, queued: int = 0
) -> Observation:
    return Observation(at_s, queued, in_flight, ready, starting, 2 * ready, 0.0)


def test_each_observation_holds_until_the_next() -> None:
    found = replica_time([seen(0, 0, starting=1), seen(4, 1, 3), seen(7, 2, 1), seen(9, 0)], 12.0)
    assert found is not None and not found.of_gpus
    assert found.to_json() == {"busy": 3.0 + 2.0, "idle": 2.0, "starting": 4.0}
    assert found.total == 11.0


def test_a_start_that_nobody_saw_counts_by_its_record() -> None:
    observations = [seen(0, 0), seen(1, 1, 1), seen(2, 1)]
    found = replica_time(observations, 3.0, [0.3, 0.4])
    assert found is not None and found.starting == pytest.approx(0.7)
    found = replica_time([seen(0, 0, starting=1), *observations[1:]], 3.0, [0.3])
    assert found is not None and found.starting == 1.0, "another has not become ready"


@pytest.mark.parametrize("ended_at_s", [-1.0, 0.0, 0.5])
def test_only_what_is_within_the_run_counts(ended_at_s: float) -> None:
    found = replica_time([seen(-3.0, 1), seen(0.25, 1), seen(4.0, 1)], ended_at_s)
    assert found is not None
    assert found.total == max(0.0, ended_at_s)


def test_of_nothing_observed_there_is_nothing() -> None:
    assert replica_time([], 10.0) is None


def test_a_step_shows_its_busiest_moment_or_the_last_before() -> None:
    observations = [seen(0.2, 1), seen(1.1, 1, 1, queued=5), seen(1.9, 3, 2), seen(4.0, 2)]
    assert by_step(observations, Steps(1, 6)) == {
        "queued": [0, 5, 0, 0, 0, 0],
        "in_flight": [0, 1, 2, 2, 0, 0],
        "ready": [1, 1, 3, 3, 2, 2],
        "starting": [0] * 6,
    }
    assert by_step([seen(2.0, 1)], Steps(1, 3))["ready"] == [None, None, 1]


@given(
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 5), st.integers(0, 9)), min_size=1),
    st.floats(0, 50),
)
def test_no_replica_second_is_lost(made: list[tuple[float, int, int]], more_s: float) -> None:
    at_s, observations = 0.0, []
    for gap_s, ready, in_flight in made:
        at_s += gap_s
        observations.append(seen(at_s, ready, in_flight))
    found = replica_time(observations, at_s + more_s)
    assert found is not None and min(found.busy, found.idle, found.starting) >= 0
    ends = [*(one.at_s for one in observations[1:]), at_s + more_s]
    assert found.total == pytest.approx(
        sum((end - one.at_s) * one.ready for one, end in zip(observations, ends, strict=True))
    )
