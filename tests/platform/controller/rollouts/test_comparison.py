from __future__ import annotations

import math
import random
from itertools import accumulate

import pytest

from hotplate.platform.controller.rollouts.comparison import (
    LEAST_ANSWERS,
    AnswerCount,
    AnswerWindow,
    fisher_p,
    worse,
)


@pytest.mark.parametrize(
    ("new", "old"),
    [((20, 5), (60, 0)), ((20, 20), (20, 0)), ((3, 1), (4, 0)), ((9, 0), (5, 2)), ((7, 7), (7, 7))],
)
def test_the_probability_is_that_of_all_ways_to_draw(
    new: tuple[int, int], old: tuple[int, int]
) -> None:
    (n, k), (m, j) = new, old
    ways = sum(
        math.comb(n, i) * math.comb(m, k + j - i)
        for i in range(k, min(n, k + j) + 1)
        if 0 <= k + j - i <= m
    )
    expected = ways / math.comb(n + m, k + j)
    assert fisher_p(AnswerCount(n, k), AnswerCount(m, j)) == pytest.approx(expected, rel=1e-9)


def test_figures_of_the_lady_tasting_tea() -> None:
    assert fisher_p(AnswerCount(4, 4), AnswerCount(4, 0)) == pytest.approx(1 / 70)
    assert fisher_p(AnswerCount(4, 3), AnswerCount(4, 1)) == pytest.approx(17 / 70)


def test_too_few_answers_say_nothing() -> None:
    old = AnswerCount(1000, 0)
    assert worse(AnswerCount(LEAST_ANSWERS - 1, LEAST_ANSWERS - 1), old) == ""
    assert "20 of its 20 answers failed, and 0 of 1000" in worse(AnswerCount(20, 20), old)


def test_what_differs_by_less_than_five_points_is_alike() -> None:
    assert worse(AnswerCount(100_000, 5_900), AnswerCount(100_000, 1_000)) == ""
    assert worse(AnswerCount(100_000, 6_000), AnswerCount(100_000, 1_000))


def test_without_answers_of_the_old_one_nothing_is_worse() -> None:
    assert worse(AnswerCount(50, 50), AnswerCount()) == ""


def outcome(chance: random.Random, share: float, answers: int) -> list[int]:
    """How many of the first n answers failed, by n from 0 on."""
    return [0, *accumulate(chance.random() < share for _ in range(answers))]


def stopped_at(chance: random.Random, new: float, old: float, answers: int) -> int | None:
    """After how many answers of each the roll-out is stopped, which is asked after each."""
    of_new, of_old = outcome(chance, new, answers), outcome(chance, old, answers)
    for n in range(LEAST_ANSWERS, answers + 1):
        if worse(AnswerCount(n, of_new[n]), AnswerCount(n, of_old[n])):
            return n
    return None


def test_of_a_thousand_roll_outs_that_fail_alike_hardly_any_is_stopped() -> None:
    chance = random.Random(19)
    stopped = [stopped_at(chance, 0.02, 0.02, 500) for _ in range(1000)]
    assert sum(each is not None for each in stopped) <= 3


def test_one_that_fails_half_of_its_answers_is_stopped_soon() -> None:
    chance = random.Random(19)
    stopped = [stopped_at(chance, 0.5, 0.0, 500) for _ in range(200)]
    assert max(each or 501 for each in stopped) <= 3 * LEAST_ANSWERS


def test_only_what_both_answered_at_the_same_time_counts() -> None:
    window = AnswerWindow()
    window.look({"g": {"main@1": {"2xx": 1000, "5xx": 500}}}, "main@2", "main@1", both=False)
    window.look({"g": {"main@1": {"2xx": 1100, "5xx": 500}}}, "main@2", "main@1", both=False)
    assert not window.old
    counted = {"main@1": {"2xx": 1110, "5xx": 500}, "main@2": {"2xx": 3, "broken": 2}}
    window.look({"g": counted}, "main@2", "main@1", both=True)
    assert (window.old["2xx"], window.old["5xx"]) == (10, 0)
    assert (window.new["2xx"], window.new["broken"], window.answers) == (3, 2, 5)
    assert window.verdict == ""


def test_a_gateway_that_starts_again_counts_from_nothing() -> None:
    window = AnswerWindow()
    for old, new in ((100, 0), (110, 10), (4, 2), (5, 3)):
        counted = {"main@1": {"2xx": old}, "main@2": {"2xx": new}}
        window.look({"g": counted}, "main@2", "main@1", both=True)
    assert window.old["2xx"] == 10 + 4 + 1
    assert window.new["2xx"] == 10 + 2 + 1


def test_each_gateway_counts_for_itself() -> None:
    window = AnswerWindow()
    for counted in (
        {"a": {"main@2": {"2xx": 5}}},
        {"a": {"main@2": {"2xx": 6}}, "b": {"main@2": {"2xx": 90}}},
        {"b": {"main@2": {"2xx": 92}}},
    ):
        window.look(counted, "main@2", "main@1", both=True)
    assert window.answers == 1 + 2


def test_bad_answers_are_those_that_failed_or_broke_off() -> None:
    count = AnswerCount.of({"2xx": 5, "3xx": 1, "4xx": 7, "5xx": 2, "broken": 3})
    assert count == AnswerCount(18, 5)
