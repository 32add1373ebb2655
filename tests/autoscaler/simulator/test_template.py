"""When a start is forked, and when it is not."""

from __future__ import annotations

import math

import pytest

from hotplate.autoscaler.simulator.template import SimulatedTemplate, TemplateSupply

COLD_S = 5.0


def lengths_s(supply: TemplateSupply, *starts_at: float) -> list[float]:
    template = SimulatedTemplate(supply)
    return [template.start_s(COLD_S, at) for at in starts_at]


def test_a_template_that_is_there_forks_each_start_in_the_lengths_of_forks() -> None:
    supply = TemplateSupply((0.4, 0.6), there_at=0.0)
    assert lengths_s(supply, 0.0, 0.0, 7.0) == [0.4, 0.6, 0.4]


def test_one_that_is_being_made_forks_what_starts_after_that() -> None:
    supply = TemplateSupply((0.4,), there_at=8.0, calm_s=10.0, making_s=8.0)
    assert lengths_s(supply, 1.0, 7.9, 8.0) == [COLD_S, COLD_S, 0.4]


def test_it_is_made_in_the_calm_after_the_last_cold_start() -> None:
    supply = TemplateSupply((0.4,), calm_s=10.0, making_s=8.0)
    first = lengths_s(supply, 1.0, 1.0 + COLD_S + 10.0 + 8.0 - 0.1, 24.0)
    assert first == [COLD_S, COLD_S, 0.4]
    delayed = lengths_s(supply, 1.0, 15.5, 38.4, 38.5)
    assert delayed == [COLD_S, COLD_S, COLD_S, 0.4]


def test_a_start_during_the_making_does_not_begin_it_anew() -> None:
    supply = TemplateSupply((0.4,), calm_s=10.0, making_s=8.0)
    assert lengths_s(supply, 1.0, 16.0, 24.0) == [COLD_S, COLD_S, 0.4]


def test_the_longest_of_several_cold_starts_is_waited_for() -> None:
    template = SimulatedTemplate(TemplateSupply((0.4,), calm_s=10.0, making_s=8.0))
    starts = [(1.0, 50.0), (2.0, COLD_S), (51.0 + 17.9, COLD_S)]
    assert [template.start_s(cold_s, at) for at, cold_s in starts] == [50.0, COLD_S, COLD_S]
    assert template.start_s(COLD_S, 51.0 + 18.0) == 0.4


@pytest.mark.parametrize(("idle_s", "expected_s"), [(99.9, 0.4), (100.0, COLD_S)])
def test_it_is_given_up_when_nothing_has_started_for_long(idle_s: float, expected_s: float) -> None:
    supply = TemplateSupply((0.4,), there_at=0.0, making_s=8.0, unused_s=100.0)
    assert lengths_s(supply, 3.0, 3.0 + idle_s) == [0.4, expected_s]


def test_what_was_given_up_is_made_again() -> None:
    supply = TemplateSupply((0.4,), there_at=0.0, calm_s=10.0, making_s=8.0, unused_s=100.0)
    assert lengths_s(supply, 3.0, 200.0, 222.9, 223.0) == [0.4, COLD_S, COLD_S, 0.4]


def test_without_a_cold_start_none_comes_of_itself() -> None:
    assert TemplateSupply((0.4,)).there_at == math.inf
