"""What is shown of a load test while it runs."""

from __future__ import annotations

import math

import pytest

from hotplate.platform.loadtest.live.figures import ALIKE, RunningFigures
from hotplate.platform.loadtest.samples import NO_ANSWER, RequestSample


def sample(
    number: int,
    sent_s: float,
    *,
    due_s: float | None = None,
    took_s: float = 0.1,
    status: int = 200,
) -> RequestSample:
    due_s = sent_s if due_s is None else due_s
    return RequestSample(due_s, sent_s, math.nan, sent_s + took_s, status, 0, 0, number)


def test_counts_and_the_percentile_are_of_what_has_ended() -> None:
    figures = RunningFigures([number / 10 for number in range(100)])
    figures.add(sample(n, n / 10, took_s=0.1 + n / 1000) for n in range(97))
    figures.add([sample(97, 9.7, status=503), sample(98, 9.8, status=429)])
    figures.add([sample(99, 9.9, status=500)])
    now = figures.at(10.0)
    assert (now.answered, now.refused, now.failed) == (97, 2, 1)
    assert now.asked_per_s == pytest.approx(10.0)
    assert now.achieved_per_s == pytest.approx(10.0)
    assert now.p95_s == pytest.approx(0.1 + 0.092)


def test_the_percentile_forgets_what_was_long_ago() -> None:
    figures = RunningFigures([0.0, 30.0])
    figures.add([sample(0, 0.0, took_s=5.0), sample(1, 30.0)])
    assert figures.at(31.0).p95_s == pytest.approx(0.1)
    assert figures.at(60.0).p95_s is None


def test_asking_that_is_behind_is_seen_although_every_request_is_answered() -> None:
    due_s = [number / 100 for number in range(1000)]
    figures = RunningFigures(due_s)
    figures.add(sample(number, number / 50, due_s=number / 100) for number in range(400))
    assert figures.kept_up == pytest.approx(0.5, abs=0.01)
    now = figures.at(8.0)
    assert now.achieved_per_s == pytest.approx(50.0, rel=0.02)


def test_slow_answers_are_no_sign_of_slow_asking() -> None:
    figures = RunningFigures([number / 100 for number in range(1000)])
    figures.add(sample(number, number / 100, took_s=5.0) for number in range(100))
    assert figures.kept_up == pytest.approx(1.0)


def test_a_closed_loop_is_asked_as_fast_as_it_is_answered() -> None:
    figures = RunningFigures(())
    figures.add(sample(number, number / 10) for number in range(50))
    now = figures.at(5.0)
    assert now.asked_per_s is None
    assert now.achieved_per_s == pytest.approx(10.0)
    assert figures.ended == 50


@pytest.mark.parametrize("status", [NO_ANSWER, 301, 400, 404, 500])
def test_twenty_failures_alike_from_the_start_are_enough(status: int) -> None:
    figures = RunningFigures(())
    figures.add(sample(number, 0.0, status=status) for number in range(ALIKE - 1))
    assert figures.alike is None
    figures.add([sample(ALIKE, 0.0, status=status)])
    assert figures.alike == status


@pytest.mark.parametrize(("first", "then"), [(200, 400), (400, 422), (503, 503), (429, 429)])
def test_other_failures_go_on(first: int, then: int) -> None:
    figures = RunningFigures(())
    figures.add([sample(0, 0.0, status=first)])
    figures.add(sample(number, 0.0, status=then) for number in range(1, 50))
    assert figures.alike is None
