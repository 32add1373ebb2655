"""The pauses between attempts."""

from __future__ import annotations

from hotplate.deploy.process.backoff import Backoff, BackoffSettings


def pauses(ready_for_s: list[float], settings: BackoffSettings | None = None) -> list[float]:
    backoff = Backoff(settings or BackoffSettings())
    found = []
    for ready in ready_for_s:
        backoff, pause_s = backoff.failed(ready)
        found.append(pause_s)
    return found


def test_pauses_double_up_to_a_minute() -> None:
    assert pauses([0.0] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_minute_of_being_ready_forgives_what_was() -> None:
    assert pauses([0.0, 0.0, 59.0, 60.0, 0.0]) == [1, 2, 4, 1, 2]


def test_weeks_of_failures_still_give_a_pause() -> None:
    assert pauses([0.0] * 5000)[-1] == 60


def test_failures_without_a_pause_come_before_those_with_one() -> None:
    settings = BackoffSettings(without_pause=2)
    assert pauses([0.0] * 5, settings) == [0, 0, 1, 2, 4]
    assert pauses([0.0] * 5000, settings)[-1] == 60
