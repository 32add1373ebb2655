"""What is answered of points: sleep is nothing, what nobody saw is null, percentiles by buckets."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.series.blocks import by_block, coarser, decoded, encoded
from hotplate.platform.series.columns import SubjectPoints, columns
from hotplate.platform.series.levels import grid
from hotplate.platform.series.percentiles import percentiles
from hotplate.platform.series.points import Point, merged, together

T = 1_800_000_000
AWAKE: Point = {"requests": 5, "replica_s.idle": 8.0, "ready_s": 10.0, "seen_s": 10.0, "awake": 1}
ASLEEP: Point = {"replica_s.idle": 2.0, "ready_s": 2.0, "seen_s": 10.0, "awake": 0}


def answered(points: dict[int, Point], since: float = 0.0, steps: int = 6) -> dict[str, Any]:
    asked = grid(T, T + 10 * steps, 10, T + 10 * steps)
    track = SubjectPoints({T + at: point for at, point in points.items()}, since)
    return columns(asked, [track], T + 10 * steps)


def test_every_member_is_as_long_as_at() -> None:
    found = answered({0: AWAKE})
    members = [value for key, value in found.items() if key != "step_s"]
    lists = [each for m in members for each in (m.values() if isinstance(m, dict) else [m])]
    assert {len(each) for each in lists} == {6}
    assert found["at"] == [T, T + 10, T + 20, T + 30, T + 40, T + 50]
    assert {name for name, value in found.items() if isinstance(value, dict)} == {
        "replicas",
        "wait_s",
        "first_byte_s",
        "answer_s",
        "gpu_s",
        "replica_s",
    }


def test_after_it_fell_asleep_there_is_nothing_and_else_nobody_knows() -> None:
    assert answered({0: AWAKE, 10: ASLEEP, 50: AWAKE})["requests"] == [5, 0, 0, 0, 0, 5]
    assert answered({0: AWAKE, 50: AWAKE})["requests"] == [5, None, None, None, None, 5]
    asleep = answered({0: AWAKE, 10: ASLEEP})
    assert asleep["replicas"]["ready"] == [1.0, 0.2, 0.0, 0.0, 0.0, 0.0]
    assert asleep["memory_bytes"] == [None, None, 0, 0, 0, 0]
    assert asleep["wait_s"]["p50"] == [None] * 6
    assert answered({-100: AWAKE})["requests"] == [None] * 6
    assert answered({-100: ASLEEP})["requests"] == [0] * 6


def test_before_it_was_made_nothing_is_known_and_then_it_has_slept() -> None:
    assert answered({30: AWAKE}, since=T + 25)["requests"] == [None, None, 0, 5, None, None]


def test_what_is_to_come_is_not_known() -> None:
    asked = grid(T, T + 60, 10, T)
    found = columns(asked, [SubjectPoints({T: ASLEEP}, 0.0)], T + 25.0)
    assert found["requests"] == [0, 0, 0, None, None, None]


def test_a_step_that_was_seen_in_part_has_the_mean_of_that_part() -> None:
    seen: Point = {"ready_s": 4.0, "wanted_s": 8.0, "seen_s": 4.0, "awake": 1}
    assert answered({0: seen})["replicas"]["ready"][0] == 1.0
    asked = grid(T, T + 60, 60, T + 60)
    slept = columns(asked, [SubjectPoints({T: seen | {"awake": 0}}, 0.0)], T + 60.0)
    assert slept["replicas"]["wanted"] == [0.13], "8 of 60 s"


def test_several_are_added_up() -> None:
    asked = grid(T, T + 20, 10, T)
    tracks = [SubjectPoints({T: AWAKE}, 0.0), SubjectPoints({T: AWAKE, T + 10: AWAKE}, 0.0)]
    found = columns(asked, tracks, T + 60.0)
    assert found["requests"] == [10, 5]
    assert found["replicas"]["ready"] == [2.0, 1.0]
    assert columns(asked, [], T + 60.0)["requests"] == [None, None]


def test_points_come_out_of_their_blocks_as_they_were() -> None:
    points: dict[int, Point] = {
        T: AWAKE,
        T + 10: ASLEEP,
        T + 50: {"cpu_s": 0, "awake": 1, "wait_s.3": 7},
    }
    assert decoded(T, encoded(T, points)) == points
    assert by_block([(T, AWAKE), (T + 60, ASLEEP), (T, AWAKE)], 60) == {
        T: {T: merged([AWAKE, AWAKE])},
        T + 60: {T + 60: ASLEEP},
    }


def test_a_longer_step_has_the_sum_the_most_and_the_end() -> None:
    points: dict[int, Point] = {
        T: {"requests": 1, "queued": 9, "awake": 1},
        T + 50: {"requests": 2, "queued": 4, "awake": 0},
    }
    assert coarser(points, 60) == {T: {"requests": 3, "queued": 9, "awake": 0}}
    assert together(points.values())["queued"] == 13


@pytest.mark.parametrize(
    ("buckets", "p50", "p99"),
    [
        ({}, None, None),
        ({3: 10}, 0.0625, 0.09925),  # between 25 and 100 ms
        ({0: 1}, 0.0005, 0.00099),
        ({0: 50, 4: 50}, 0.001, 0.492),
        ({12: 3}, 300.0, 300.0),
    ],
)
def test_percentiles_lie_in_their_bucket(
    buckets: dict[int, int], p50: float | None, p99: float | None
) -> None:
    found = percentiles({f"wait_s.{number}": n for number, n in buckets.items()}, "wait_s")
    assert found["p50"] == pytest.approx(p50)
    assert found["p99"] == pytest.approx(p99)
