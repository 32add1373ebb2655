"""How long the next starts take, by those on record and by what is known of standbys."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hotplate.platform.loadtest.predicting.starts import LAST, known, spread

POOL = "4b1f00c0ffee cpu default"
BEGAN = datetime(2026, 11, 23, 9, tzinfo=UTC)


def start(
    length_s: float, *, forked: bool = False, pool: str = POOL, **share_s: float
) -> dict[str, Any]:
    """As `/cold_starts` answers."""
    phases = [{"name": name, "share_s": share} for name, share in share_s.items()]
    ready_at = BEGAN + timedelta(seconds=length_s)
    about = {"created_at": BEGAN.isoformat(), "ready_at": ready_at.isoformat(), "phases": phases}
    return about | {"pool": pool, "forked": forked}


def standby(**changed: Any) -> dict[str, Any]:
    """As `/standby` answers."""
    pool = {"pool": POOL, "templates": 1, "making": 0, "refill_s": 8.0, "unforkable": ""}
    settings = {"calm_s": 10.0, "unused_s": 1800.0}
    return {"settings": settings, "pools": [{"pool": "another"}, pool | changed]}


def test_forks_and_cold_starts_are_told_apart() -> None:
    starts = [start(0.4, forked=True), start(5.0), start(0.6, forked=True), start(7.0)]
    cold_s, template = known(starts, [5.0, 0.4], standby())
    assert cold_s == [5.0, 7.0]
    assert template is not None
    assert sorted(template.forks_s) == [0.4, 0.6]
    assert (template.calm_s, template.making_s, template.unused_s) == (10.0, 8.0, 1800.0)


@pytest.mark.parametrize(
    ("pool", "there_at"),
    [
        ({"templates": 1}, 0.0),
        ({"templates": 0, "making": 1}, 8.0),
        ({"templates": 0, "making": 0}, math.inf),
    ],
)
def test_a_template_is_there_or_comes_or_has_yet_to_be_wanted(
    pool: dict[str, Any], there_at: float
) -> None:
    _, template = known([start(5.0)], [5.0], standby(**pool))
    assert template is not None
    assert template.there_at == there_at


def test_what_happens_once_is_no_part_of_the_next_start() -> None:
    long = start(60.0, instance=10.0, environment=44.0, process=4.0, init=2.0)
    assert known([long], [6.0], standby())[0] == [6.0]


def test_before_the_first_fork_it_takes_what_a_service_needs_to_begin() -> None:
    _, template = known([start(5.0, process=4.5, init=0.3, weights=0.2)], [5.0], standby())
    assert template is not None
    assert template.forks_s == [0.5]


def test_where_no_cold_start_is_on_record_the_longest_that_is_learnt_is_one() -> None:
    assert known([start(0.4, forked=True)], [0.4, 5.2, 0.5], standby())[0] == [5.2]


def test_the_newest_of_each_kind_count() -> None:
    starts = [start(0.4, forked=True)] * LAST + [start(9.0, forked=True), start(5.0)]
    cold_s, template = known(starts, [0.4], standby())
    assert cold_s == [5.0]
    assert template is not None
    assert set(template.forks_s) == {0.4}


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ([], standby()),
        ([start(5.0, pool="")], standby()),
        ([start(5.0, pool="gone")], standby()),
        ([start(5.0)], standby(unforkable="its runtime forks nothing")),
        ([start(5.0)], {}),
        ([start(5.0) | {"ready_at": None}], standby()),
    ],
)
def test_where_nothing_is_forked_all_that_is_learnt_counts(
    starts: list[dict[str, Any]], said: dict[str, Any]
) -> None:
    assert known(starts, [0.2, 4.0], said) == ([0.2, 4.0], None)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 20])
def test_lengths_are_spread_with_the_median_first(count: int) -> None:
    lengths_s = [float(one) for one in range(count)]
    found = spread(lengths_s[::-1])
    assert sorted(found) == lengths_s
    assert found[0] == count // 2
    if count == 20:
        assert sum(found[:7]) / 7 == pytest.approx(sum(lengths_s) / 20, abs=1.0)
        assert min(map(found.index, (0.0, 19.0))) >= 13
