"""Figures of requests: what counts as what, from when latency counts, and exact percentiles."""

from __future__ import annotations

import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.autoscaler.simulator.outcome import percentile
from hotplate.platform.loadtest.samples import NO_ANSWER, RequestSample
from hotplate.platform.loadtest.tally import (
    MOST_STEPS,
    PERCENTS,
    Steps,
    Tally,
    counts_by_step,
    distribution,
    distribution_of_many,
    tally,
)

numbers = count()


def sample(
    due_s: float = 0.0,
    end_s: float = 1.0,
    status: int = 200,
    *,
    sent_s: float | None = None,
    first_byte_s: float = math.nan,
    organization: int = 0,
) -> RequestSample:
    sent = due_s if sent_s is None else sent_s
    return RequestSample(due_s, sent, first_byte_s, end_s, status, organization, 0, next(numbers))


def of(*samples: RequestSample, duration_s: float = 10.0) -> Tally:
    ended_at_s = max([duration_s, *(one.end_s for one in samples)])
    return tally(samples, duration_s, Steps.over(duration_s, ended_at_s))


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        (200, (1, 0, 0)),
        (204, (1, 0, 0)),
        (299, (1, 0, 0)),
        (300, (0, 0, 1)),
        (199, (0, 0, 1)),
        (404, (0, 0, 1)),
        (429, (0, 1, 0)),
        (500, (0, 0, 1)),
        (502, (0, 0, 1)),
        (503, (0, 1, 0)),
        (504, (0, 0, 1)),
        (NO_ANSWER, (0, 0, 1)),
    ],
)
def test_a_status_is_an_answer_a_refusal_or_a_failure(
    status: int, counts: tuple[int, int, int]
) -> None:
    found = of(sample(status=status))
    assert (found.answered, found.refused, found.failed) == counts
    assert found.requests == 1


def test_latency_counts_from_when_a_request_was_due_however_late_it_was_sent() -> None:
    found = of(sample(due_s=1.0, sent_s=4.0, end_s=4.5, first_byte_s=4.25))
    assert found.latency_s is not None and found.latency_s["max"] == 3.5
    assert found.first_byte_s is not None and found.first_byte_s["p50"] == 3.25


def test_a_refusal_that_comes_at_once_makes_no_latency_better() -> None:
    found = of(sample(end_s=2.0), *(sample(end_s=0.001, status=503) for _ in range(99)))
    assert found.latency_s is not None and found.latency_s["p50"] == 2.0


def test_without_answers_there_are_no_latencies() -> None:
    found = of(sample(status=500))
    assert (found.latency_s, found.first_byte_s) == (None, None)
    assert found.series["p95_s"] == [None] * 10


def test_what_is_sent_or_answered_after_the_end_is_none_of_the_rate() -> None:
    found = of(
        sample(due_s=9.0, sent_s=9.9, end_s=10.0),
        sample(due_s=9.0, sent_s=9.9, end_s=10.1),
        sample(due_s=9.0, sent_s=10.0, end_s=10.2),
    )
    assert (found.requests, found.sent, found.answered_in_time) == (3, 2, 1)


def test_steps_count_requests_when_they_were_sent_and_answers_when_they_came() -> None:
    found = of(
        sample(due_s=0.5, end_s=2.5),
        sample(due_s=0.6, end_s=2.6, status=429),
        sample(due_s=1.5, end_s=11.5, status=500),
    )
    assert found.series["sent"][:3] == [2, 1, 0]
    assert found.series["answered"] == [0, 0, 1, *[0] * 9]
    assert found.series["refused"] == [0, 0, 1, *[0] * 9]
    assert found.series["failed"] == [*[0] * 11, 1]
    assert found.series["p95_s"][:3] == [2.0, None, None]


def test_what_lies_outside_of_the_steps_counts_to_the_first_and_the_last() -> None:
    found = tally([sample(due_s=-0.5, end_s=99.0)], 10.0, Steps(1, 3))
    assert found.series["sent"] == [1, 0, 0]
    assert found.series["answered"] == [0, 0, 1]
    assert found.series["p95_s"] == [99.5, None, None]
    assert counts_by_step([-1.0, 0.0, 1.5, 77.0], Steps(1, 3)) == [2, 1, 1]


def test_each_organization_has_its_own_figures() -> None:
    samples = [
        sample(end_s=1.0),
        sample(end_s=3.0, organization=1),
        sample(status=429, organization=1),
        sample(status=500, organization=1),
    ]
    found = tally(samples, 10.0, Steps(1, 10), ("acme", "beta")).organizations
    assert found["acme"] == {
        "requests": 1,
        "answered": 1,
        "refused": 0,
        "latency_s": dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), 1.0),
    }
    assert (found["beta"]["requests"], found["beta"]["answered"], found["beta"]["refused"]) == (
        3,
        1,
        1,
    )


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=300))
def test_percentiles_of_requests_are_exact(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    ordered = sorted(values)
    for percent in PERCENTS:
        assert found[f"p{percent}"] == round(percentile(ordered, percent), 6)
        assert sum(value <= ordered[-1] for value in values) * 100 >= percent * len(values)
    assert found["max"] == round(max(values), 6)


@given(st.lists(st.floats(2**-10, 1e5, width=32), min_size=1, max_size=300))
def test_percentiles_of_many_times_are_within_a_thousandth(values: list[float]) -> None:
    found, exact = distribution_of_many(values), distribution(values)
    assert found is not None and exact is not None
    for name, value in exact.items():
        assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-6)
    assert found["p50"] <= found["p90"] <= found["p95"] <= found["p99"] <= found["max"]


def test_two_events_at_once_are_a_microsecond_apart_at_most() -> None:
    found = distribution_of_many([0.0, 0.0, 0.0])
    assert found is not None and found["p99"] == 0.0 and found["max"] == 0.0
    assert distribution_of_many([]) is None


@given(st.floats(0.1, 1e6), st.floats(0, 1e4))
def test_steps_cover_a_run_and_are_some_hundreds(duration_s: float, more_s: float) -> None:
    steps = Steps.over(duration_s, duration_s + more_s)
    assert steps.width_s * steps.count >= duration_s + more_s
    assert math.ceil(duration_s / steps.width_s) <= MOST_STEPS
    assert steps.width_s == Steps.over(duration_s, duration_s).width_s


@given(
    st.lists(
        st.tuples(
            st.floats(0, 20), st.floats(0, 20), st.sampled_from([0, 200, 201, 404, 429, 500, 503])
        )
    )
)
def test_every_request_is_counted_once(made: list[tuple[float, float, int]]) -> None:
    found = of(*(sample(due, due + took, status) for due, took, status in made))
    assert found.answered + found.refused + found.failed == found.requests == len(made)
    for name in ("answered", "refused", "failed"):
        assert sum(found.series[name]) == getattr(found, name)
    assert sum(found.series["sent"]) == len(made)
