"""Curves of a series: what is drawn, what is left out, and what is said of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.loadtest.chart import (
    LANE,
    LANES,
    Chart,
    charts,
    cold_start_chart,
    number,
    seconds,
    time_marks,
)

BEGAN_AT = 1795424400.0


def series(**changed: Any) -> dict[str, Any]:
    said = {
        "step_s": 2,
        "at": [0, 2, 4, 6],
        "asked": [80, 80, 80, 0],
        "answered": [0, 60, 80, 80],
        "failed": [0] * 4,
        "refused": [0, 20, 0, 0],
        "p95_s": [1.5, 0.5, None, 0.25],
        "queued": [3, 0, 0, 0],
        "in_flight": [2, 2, 1, 0],
        "ready": [None, 1, 2, 2],
        "starting": [None, 1, 0, 0],
    }
    return said | changed


def drawn(found: list[Chart]) -> dict[str, list[str]]:
    return {chart.title: [curve.column for curve in chart.curves] for chart in found}


def test_every_subject_has_its_chart_and_only_what_happened_its_curve() -> None:
    assert drawn(charts(series())) == {
        "Requests per second": ["asked", "answered", "refused"],
        "Latency, 95th percentile of each step": ["p95_s"],
        "Requests that wait and run": ["queued", "in_flight"],
        "Replicas": ["ready", "starting"],
    }


def test_of_a_url_only_requests_are_known() -> None:
    nothing = {name: [None] * 4 for name in ("queued", "in_flight", "ready", "starting", "p95_s")}
    assert list(drawn(charts(series(**nothing)))) == ["Requests per second"]


def test_words_say_what_a_reader_cannot_see() -> None:
    requests, latency, queue, replicas = [chart.words for chart in charts(series())]
    assert requests == "Requests per second: asked up to 40; answered up to 40; refused up to 10."
    assert latency.endswith("p95 up to 1.5 s.")
    assert queue == "Requests that wait and run: queued up to 3; in flight up to 2."
    assert replicas == "Replicas: ready up to 2; starting up to 1."


def test_a_line_has_a_gap_where_nothing_is_known_and_a_dot_for_a_step_alone() -> None:
    line = charts(series())[1].curves[0].line
    assert line == "M0.5 0.00L1.5 66.67M3.5 83.33h.01"


def test_replicas_change_all_at_once() -> None:
    ready, starting = charts(series())[3].curves
    assert ready.line == "M1 50.00V50.00H2V0.00H3V0.00H4"
    assert starting.area == "M1 100V0.00H2V0.00H3V0.00H4V100Z"


def test_times_of_very_different_lengths_are_drawn_by_their_logarithm() -> None:
    (_, latency, *_) = charts(series(p95_s=[9.0, 0.02, 0.02, None]))
    assert latency.title.endswith("(logarithmic)")
    assert [mark.text for mark in latency.marks] == ["10 ms", "100 ms", "1 s", "10 s"]


@pytest.mark.parametrize(
    ("step_s", "count", "unit", "texts"),
    [
        (1, 60, "seconds", ["0", "10", "20", "30", "40", "50", "60"]),
        (1, 240, "minutes", ["0", "1", "2", "3", "4"]),
        (15, 240, "minutes", ["0", "10", "20", "30", "40", "50", "60"]),
        (3600, 24, "hours", ["0", "5", "10", "15", "20"]),
    ],
)
def test_the_time_is_told_in_round_numbers(
    step_s: int, count: int, unit: str, texts: list[str]
) -> None:
    found, in_unit = time_marks(series(step_s=step_s, at=[0] * count))
    assert ([mark.text for mark in found], in_unit) == (texts, unit)
    assert found[0].at == 0 and found[-1].at <= 100


def cold_start(at_s: float, took_s: float | None, **changed: Any) -> dict[str, Any]:
    second = f"{int(at_s) // 60:02}:{at_s % 60:09.6f}"
    begun = BEGAN_AT + at_s
    phases = [{"name": "process", "start": begun, "end": begun + (took_s or 1), "share_s": 1.0}]
    said = {"replica": "r", "started_at": f"2026-11-23T09:{second}+00:00", "seconds": took_s}
    return said | {"phases": phases} | changed


def test_starts_at_the_same_time_are_drawn_below_each_other() -> None:
    some = [cold_start(0, 10), cold_start(5, 10), cold_start(12, 10), cold_start(90, None)]
    found = cold_start_chart(some, BEGAN_AT, 100.0)
    assert found is not None
    wholes = [bar for bar in found.bars if bar.phase == "whole"]
    assert [(bar.left, bar.width, bar.top // LANE) for bar in wholes] == [
        (0.0, 10.0, 0),
        (5.0, 10.0, 1),
        (12.0, 10.0, 0),
        (90.0, 10.0, 0),
    ]
    assert found.height == 2 * LANE
    assert wholes[0].words == "r: 10 s" and wholes[-1].words == "r: not ready yet"


def test_starts_without_room_are_counted() -> None:
    found = cold_start_chart([cold_start(1, 10)] * (LANES + 3), BEGAN_AT, 100.0)
    assert found is not None
    assert (found.hidden, found.height) == (3, LANES * LANE)
    assert cold_start_chart([], BEGAN_AT, 100.0) is None


def test_a_phase_that_nobody_knows_has_no_class_of_its_own() -> None:
    phases = [{"name": '"><script>', "start": BEGAN_AT, "end": None, "share_s": 0.0}]
    found = cold_start_chart([cold_start(0, 10, phases=phases)], BEGAN_AT, 100.0)
    assert found is not None and found.bars[1].phase == "other"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.00012, "0.12 ms"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (999.4, "999 s"),
        (12345.0, "12,345 s"),
    ],
)
def test_a_time_has_three_digits(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3, "3"), (9.876, "9.88"), (99.9, "99.9"), (1234.5, "1,234")]
)
def test_a_count_has_no_digits_that_say_nothing(value: float, text: str) -> None:
    assert number(value) == text


known = st.none() | st.integers(0, 10**12).map(lambda microseconds: microseconds / 1e6)


@given(st.integers(1, 40).flatmap(lambda size: st.lists(known, min_size=size, max_size=size)))
def test_nothing_is_drawn_outside_of_its_box(values: list[float | None]) -> None:
    count = len(values)
    counts = [0 if value is None else int(value) for value in values]
    columns = {name: counts for name in ("asked", "answered", "failed", "refused")}
    columns |= {name: counts for name in ("queued", "in_flight", "ready", "starting")}
    for chart in charts(series(at=list(range(count)), **columns, p95_s=values)):
        for curve in chart.curves:
            for x, y in re.findall(r"[ML]([\d.]+) (-?[\d.]+)", curve.line):
                assert 0 <= float(x) <= count and -0.01 <= float(y) <= 100.01
        assert all(-0.01 <= mark.at <= 100.01 for mark in chart.marks)
