"""Phases of a cold start."""

from __future__ import annotations

from hotplate.deploy.engine import Phase
from hotplate.deploy.phases import PhaseLog, merge


def test_the_process_knows_when_it_was_up() -> None:
    noted = [Phase("instance", 1, 2), Phase("process", 3)]
    own = [Phase("init", 6, 8), Phase("weights", 4), Phase("process", 3.5, 5)]
    assert merge(noted, own) == (
        Phase("instance", 1, 2),
        Phase("process", 3, 5),
        Phase("weights", 4),
        Phase("init", 6, 8),
    )


def test_no_phase_is_open_once_it_is_ready() -> None:
    assert merge([Phase("process", 3)], [], ready_at=9) == (Phase("process", 3, 9),)


def test_a_phase_that_begins_twice_keeps_its_start() -> None:
    log = PhaseLog([Phase("environment", 5.0)])
    log.begin("environment")
    log.end("environment")
    (phase,) = log.phases()
    assert phase.start == 5.0
    assert phase.end is not None
