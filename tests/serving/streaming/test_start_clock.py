"""In a pod, what is noted of a start goes by a clock that nobody sets."""

from __future__ import annotations

import time

import pytest

from hotplate.serving.streaming.start_clock import LAUNCHED, launched_at, note_launch, unix_now

YEAR_2001 = 1e9


@pytest.mark.parametrize("noted", [None, "", "soon", "1.0", "1.0 2.0 3.0"])
def test_elsewhere_it_is_the_wall_clock(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    monkeypatch.delenv(LAUNCHED, raising=False)
    if noted is not None:
        monkeypatch.setenv(LAUNCHED, noted)
    assert launched_at() is None
    assert unix_now() == pytest.approx(time.clock_gettime(time.CLOCK_REALTIME), abs=5)


def test_a_wall_clock_that_is_set_meanwhile_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    variables: dict[str, str] = {}
    note_launch(variables)
    _, steady = variables[LAUNCHED].split()
    monkeypatch.setenv(LAUNCHED, f"{YEAR_2001} {steady}")  # as before somebody put it right
    assert launched_at() == YEAR_2001
    first, second = unix_now(), unix_now()
    assert YEAR_2001 <= first <= second < YEAR_2001 + 60
