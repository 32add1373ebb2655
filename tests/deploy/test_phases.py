"""Phases of a cold start."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hotplate.deploy.phases import Phase, PhaseLog, believable, merge


def test_the_process_knows_when_it_was_up() -> None:
    noted = [Phase("instance", 1, 2), Phase("environment", 2, 3), Phase("process", 3)]
    own = [Phase("process", 3.5, 5), Phase("init", 5.01, 8)]
    assert merge(noted, own)[2:] == (Phase("process", 3, 5.01), Phase("init", 5.01))


STARTED = [Phase("instance", 0, 1), Phase("environment", 1, 4), Phase("process", 4)]
UP = Phase("init", 6)
READY_AT = 10.0


@pytest.mark.parametrize(
    ("arriving", "loading", "shares"),
    [
        pytest.param(None, None, [1, 3, 2, 4], id="no weights"),
        pytest.param((1, 2), None, [1, 3, 0, 2, 4], id="there before the environment"),
        pytest.param((1, 9), None, [1, 3, 0, 2, 4], id="arriving, and read by nobody"),
        pytest.param((1, 9), (7, 9), [1, 3, 0, 2, 2, 2], id="read as they arrive"),
        pytest.param((1, None), (7, 9), [1, 3, 0, 2, 2, 2], id="seen by an engine that left"),
        pytest.param((1, 2), (5, 8), [1, 3, 0, 2, 2, 2], id="loaded while it is imported"),
        pytest.param((1, 2), (5, 80), [1, 3, 0, 2, 4, 0], id="loading when it says it is ready"),
    ],
)
def test_shares_say_what_was_waited_for_and_add_up(
    arriving: tuple[float, float | None] | None,
    loading: tuple[float, float] | None,
    shares: list[float],
) -> None:
    noted = [*STARTED, *([Phase("weights", *arriving)] if arriving else [])]
    own = [UP, *([Phase("weights", *loading)] if loading else [])]
    phases = merge(noted, own, READY_AT)
    assert [phase.share_s for phase in phases] == shares
    assert sum(shares) == READY_AT
    chain = [phase for phase in phases if phase.name != "weights"]
    assert all(before.end == after.start for before, after in pairwise(chain))
    assert sum((phase.end or 0) - phase.start for phase in chain) == READY_AT


def test_what_a_process_says_of_itself_is_moved_to_where_it_can_have_been() -> None:
    said = [Phase("process", -1e300, 1e300), Phase("init", 5, 2), Phase("weights", 1e300)]
    assert believable(said, since=4, now=10) == [
        Phase("process", 4, 10),
        Phase("init", 5, 5),
        Phase("weights", 10),
    ]


def test_weights_that_the_environment_waits_for_fill_the_time_until_the_process() -> None:
    noted = [Phase("instance", 0, 1), Phase("environment", 1, 2), Phase("process", 5)]
    phases = merge([*noted, Phase("weights", 1, 5)], [UP], READY_AT)
    assert {phase.name: phase.share_s for phase in phases} == {
        "instance": 1,
        "environment": 1,
        "weights": 3,
        "process": 1,
        "init": 4,
    }


def test_no_phase_is_open_once_it_is_ready() -> None:
    assert merge([Phase("process", 3)], [], ready_at=9) == (Phase("process", 3, 9, 6),)


@pytest.mark.parametrize("up_at", [2.0, 11.0])
def test_a_process_with_another_clock_cannot_make_a_length_negative(up_at: float) -> None:
    phases = merge(STARTED, [Phase("init", up_at)], READY_AT)
    assert all(phase.start <= (phase.end or 0) for phase in phases)
    assert sum(phase.share_s for phase in phases) == READY_AT


def test_a_phase_begins_where_the_last_one_ended() -> None:
    log = PhaseLog()
    log.begin("instance", 5.0)
    log.end("instance")
    log.begin("environment")
    log.begin("weights")
    log.end("environment")
    log.end("weights")
    log.begin("process")
    instance, environment, weights, process = log.phases()
    assert environment.start == instance.end
    assert weights.start >= environment.start
    assert process.start == weights.end


def test_a_phase_that_begins_twice_keeps_its_start() -> None:
    log = PhaseLog([Phase("environment", 5.0)])
    log.begin("environment")
    log.end("environment")
    (phase,) = log.phases()
    assert phase.start == 5.0
    assert phase.end is not None
