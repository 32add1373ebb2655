from __future__ import annotations

import pytest

from hotplate.autoscaler.policy import Demand, Policy, Replicas
from hotplate.autoscaler.rules.growth import SPAN_S, SPANS, STEP_S, Growth
from tests.autoscaler.deciding import asleep, decided


def grown(counts: dict[float, int]) -> Growth:
    growth = Growth()
    for now, count in counts.items():
        growth.record(count, now)
    return growth


def test_what_grew_all_the_time_grows_as_fast_as_where_it_grew_least() -> None:
    growth = grown({0.0: 3, 2.0: 6, 5.0: 12, 8.0: 15})
    assert growth.per_s(9.0) == pytest.approx(3 / SPAN_S)


@pytest.mark.parametrize(
    "counts",
    [{}, {0.0: 20}, {0.1 * i: i for i in range(50)}, {float(i): 20 - i for i in range(9)},
     {0.0: 5, 4.0: 5, 8.0: 30}],
    ids=["nothing", "a jump", "a burst of 5 s", "falling", "a pause of a span"],
)  # fmt: skip
def test_what_did_not_grow_in_each_span_does_not_grow(counts: dict[float, int]) -> None:
    assert grown(counts).per_s(SPANS * SPAN_S) == 0.0


@pytest.mark.parametrize(
    ("grown_by", "per_s"),
    [
        ((3, 6, 9, 12), 1.0),
        ((12, 3, 9, 6), 1.0),
        ((12, 9, 3, 6), 1.0),
        ((12, 9, 6, 3), 1.0),
        ((9, 9, 9, 9), 3.0),
        ((9, 9, 9, 0), 0.0),
        ((0, 9, 9, 9), 0.0),
    ],
)
def test_growth_is_that_of_the_slowest_of_four_spans(
    grown_by: tuple[int, ...], per_s: float
) -> None:
    growth, count = grown({100.0: 5}), 5
    for number, more in enumerate(grown_by, start=1):
        count += more
        growth.record(count, 100.0 + number * SPAN_S)
    assert growth.per_s(100.0 + SPANS * SPAN_S) == per_s


@pytest.mark.parametrize(("later_s", "per_s"), [(0.4, 0.0), (STEP_S, 1 / SPAN_S)])
def test_changes_within_half_a_second_are_one(later_s: float, per_s: float) -> None:
    growth = grown({1.0: 1, 4.0: 2, 7.0: 3, 10.0: 4, 10.0 + later_s: 9})
    assert growth.per_s(10.2 + SPAN_S) == pytest.approx(per_s)


def test_changes_that_follow_at_once_count_as_one() -> None:
    growth = grown({0.001 * i: i for i in range(60_000)})
    assert growth.per_s(60.0) == pytest.approx(1000.0, rel=0.2)


def desired_when_woken(arrivals: list[float], now: float) -> int:
    """How many replicas there should be then, where none is ready yet (in 60 s one would be)."""
    decider = asleep(Policy(0, 20))
    decider.record_cold_start(60.0)
    decider.record_cold_start(60.0)
    starting: list[float] = []
    for held, at in enumerate([*arrivals, now], start=1):
        held = min(held, len(arrivals))
        decision = decided(decider, Demand(0, held, 5.0), Replicas(0, tuple(starting)), at)
        starting += [at] * (decision.desired - len(starting))
    return len(starting)


def test_requests_that_keep_coming_to_a_sleeping_model_are_reckoned_with_before_they_are_held() -> (
    None
):
    """One a second, of 5 s each: five replicas' worth, and 60 held when the first is ready."""
    stream = [float(i) for i in range(1, 21)]
    assert desired_when_woken(stream, 20.0) > 4
    assert desired_when_woken([*stream[:8], *[9.0] * 12], 30.0) < desired_when_woken(stream, 30.0)


def test_of_a_burst_that_has_ended_no_more_is_expected() -> None:
    burst = [0.25 * i for i in range(1, 21)]
    assert desired_when_woken(burst, 5.25) == desired_when_woken(burst, 8.0)
