"""When requests are due: shapes, closed loops, and traces as they are."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.autoscaler.simulator.arrivals import RequestTrace
from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.asking.arrivals import beginnings, of_trace, poisson
from hotplate.platform.loadtest.asking.shapes import SHAPES

ALL = sorted(SHAPES)


@pytest.mark.parametrize("name", ALL)
def test_the_mean_of_a_shape_is_what_it_says_and_its_peak_is_one(name: str) -> None:
    shape = SHAPES[name]
    shares = [shape.share((step + 0.5) / 10_000) for step in range(10_000)]
    assert sum(shares) / len(shares) == pytest.approx(shape.mean, abs=1e-3)
    assert max(shares) == pytest.approx(1.0, abs=1e-3) and min(shares) >= 0
    growing = all(one <= other for one, other in pairwise(shares))
    assert growing == shape.growing


@pytest.mark.parametrize("name", ALL)
def test_arrivals_are_as_many_as_the_shape_says_in_each_part_of_the_time(name: str) -> None:
    shape, rate, duration_s = SHAPES[name], 500.0, 100.0
    due_s = poisson(shape, rate, duration_s, random.Random(7))
    assert list(due_s) == sorted(due_s) and due_s[0] >= 0 and due_s[-1] < duration_s
    for part in range(10):
        begin, end = part * 10.0, part * 10.0 + 10.0
        found = sum(begin <= at < end for at in due_s)
        steps = [shape.share((begin + (step + 0.5) / 10) / duration_s) for step in range(100)]
        meant = rate * sum(steps) / 10
        assert abs(found - meant) <= 5 * meant**0.5 + 1


def test_gaps_are_those_of_a_poisson_process() -> None:
    due_s = poisson(SHAPES["constant"], 100.0, 200.0, random.Random(3))
    gaps = [after - before for before, after in pairwise(due_s)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.01, rel=0.05)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)


def test_a_seed_gives_the_same_arrivals_again() -> None:
    one, same, other = (
        poisson(SHAPES["day"], 20.0, 10.0, random.Random(seed)) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_more_arrivals_than_ten_million_are_refused_with_both_numbers() -> None:
    with pytest.raises(BadSetting, match=r"1.2e\+07 requests; a load test has at most 10000000"):
        poisson(SHAPES["constant"], 1e5, 120.0, random.Random(0))


@given(st.integers(1, 300), st.sampled_from([n for n in ALL if SHAPES[n].growing]))
def test_users_begin_as_the_shape_grows(users: int, name: str) -> None:
    shape, duration_s = SHAPES[name], 40.0
    begin_s = beginnings(shape, users, duration_s)
    assert len(begin_s) == users and list(begin_s) == sorted(begin_s)
    for step in range(1, 40):
        active = sum(at <= step for at in begin_s)
        assert abs(active - users * shape.share(step / duration_s)) <= 1 + users * 0.002


def test_all_users_of_a_constant_shape_begin_at_once() -> None:
    assert set(beginnings(SHAPES["constant"], 5, 60.0)) == {0.0}


def trace(**arrivals: list[float]) -> dict[str, RequestTrace]:
    return {
        name: RequestTrace("acme", list(at_s), [1.0] * len(at_s)) for name, at_s in arrivals.items()
    }


def test_a_trace_begins_with_its_first_request_and_goes_at_its_speed() -> None:
    due_s, lasts_s = of_trace(trace(m=[100.0, 104.0, 110.0]), "", 2.0, None)
    assert (list(due_s), lasts_s) == ([0.0, 2.0, 5.0], 5.0)
    due_s, lasts_s = of_trace(trace(m=[100.0, 104.0, 110.0]), "other", 1.0, 5.0)
    assert (list(due_s), lasts_s) == ([0.0, 4.0], 5.0)


def test_a_trace_of_one_request_lasts_a_second() -> None:
    assert of_trace(trace(m=[7.0]), "", 1.0, None)[1] == 1.0


def test_of_a_trace_of_several_the_deployments_own_requests_are_taken() -> None:
    due_s, _ = of_trace(trace(chat=[0.0, 3.0], embed=[1.0]), "chat", 1.0, None)
    assert list(due_s) == [0.0, 3.0]


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ("chta", r"no request for chta, only for 2 others \(chat, embed\); did you mean chat\?"),
        ("", r"requests for 2 deployments \(chat, embed\), and of a URL"),
    ],
)
def test_a_trace_that_has_none_of_the_deployments_requests_is_refused(
    deployment: str, said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        of_trace(trace(chat=[0.0], embed=[1.0]), deployment, 1.0, None)
