"""In which steps a question is answered."""

from __future__ import annotations

import pytest

from hotplate.platform.series.levels import COARSE, FINE, MEDIUM, POINTS_MAX, Level, grid

NOW = 1_800_000_007.0
HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("ago_s", "until_s", "asked_s", "step_s", "level"),
    [
        (HOUR, 0, 0, 10, FINE),
        (HOUR, 0, 10, 10, FINE),
        (HOUR, 0, 15, 20, FINE),
        (HOUR, 0, 60, 60, MEDIUM),
        (HOUR, 0, 61, 120, MEDIUM),
        (6 * HOUR, 0, 0, 20, FINE),
        (DAY - 60, 0, 0, 50, FINE),
        (2 * DAY, 2 * DAY - HOUR, 10, 60, MEDIUM),
        (7 * DAY, 0, 0, 360, MEDIUM),
        (7 * DAY, 0, 900, 900, COARSE),
        (30 * DAY, 30 * DAY - HOUR, 0, 900, COARSE),
        (100 * DAY, 0, 0, 4500, COARSE),
    ],
)
def test_a_step_is_as_short_as_may_be(
    ago_s: float, until_s: float, asked_s: float, step_s: int, level: Level
) -> None:
    found = grid(NOW - ago_s, NOW - until_s, asked_s, NOW)
    assert (found.step_s, found.level) == (step_s, level)
    assert found.begin % found.step_s == 0
    assert found.begin <= NOW - ago_s < found.begin + found.step_s
    assert found.end - found.step_s < NOW - until_s <= found.end
    assert found.count <= POINTS_MAX
    assert len(found.at) == found.count


def test_any_time_has_few_enough_steps() -> None:
    for begin, end in ((0.0, NOW), (NOW - 0.5, NOW), (NOW - 20_000, NOW + 20_000), (0.0, 1e12)):
        found = grid(begin, end, 0, NOW)
        assert 1 <= found.count <= POINTS_MAX
        assert found.begin <= begin < end <= found.end
