"""Curves of a report's series on one time axis, as the paths of SVG; pure.

A curve is drawn in a box that is as wide as there are steps and 100 high; the page stretches it to
the reader's screen, and the words beside it keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from hotplate.platform.axis_marks import marks

HEIGHT = 100.0
MARKS = 3
"""Lines across a chart, at most."""
TIME_MARKS = 6
LOGARITHMIC = 30.0
"""From this ratio of the largest to the smallest value on, a chart of times is logarithmic."""
UNITS_S = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
LANES = 16
"""Rows of cold starts that are drawn."""
LANE = 14
"""Their height in pixels."""
LEAST_WIDTH = 0.15
"""Percent; what is shorter could not be seen."""

Values = Sequence[float | None]


@dataclass(frozen=True)
class Curve:
    """One column of the series."""

    column: str
    """Its key in the series; also the class by which it has its colour."""
    name: str
    line: str
    """The path of the line."""
    area: str = ""
    """The path of what is below it; empty = it is not filled."""


@dataclass(frozen=True)
class Mark:
    """A line across the chart, or a time below it."""

    at: float
    """Percent from the top or from the left."""
    text: str


@dataclass(frozen=True)
class Chart:
    title: str
    words: str
    """What somebody hears who does not see it."""
    curves: Sequence[Curve]
    """The first lies above the others."""
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Bar:
    """A part of a cold start; percent from the left, pixels from the top."""

    left: float
    width: float
    top: int
    height: int
    phase: str
    words: str


@dataclass(frozen=True)
class ColdStartChart:
    bars: Sequence[Bar]
    height: int
    hidden: int
    """How many starts there was no room for."""


def charts(series: Mapping[str, Any]) -> list[Chart]:
    """Requests, latency, queue and replicas; those of which nothing is known are left out."""
    step_s = series["step_s"]
    rates = {
        name: [count / step_s for count in series[name]]
        for name in ("asked", "answered", "refused", "failed")
    }
    shown = {
        name: values
        for name, values in rates.items()
        if name in ("asked", "answered") or any(values)
    }
    found = [_linear("Requests per second", shown, filled=("answered",))]
    if any(value is not None for value in series["p95_s"]):
        found.append(_latency(series["p95_s"]))
    if any(value is not None for value in series["queued"]):
        queue = {name: series[name] for name in ("queued", "in_flight")}
        found.append(_linear("Requests that wait and run", queue, filled=("queued",)))
        found.append(_replicas(series["ready"], series["starting"]))
    return found


def time_marks(series: Mapping[str, Any]) -> tuple[list[Mark], str]:
    """The times below the charts, and their unit."""
    span_s = series["step_s"] * len(series["at"])
    unit = next((unit for unit, s in UNITS_S.items() if span_s >= 3 * s), "seconds")
    whole = span_s / UNITS_S[unit]
    at = [mark for mark in marks(whole, TIME_MARKS) if mark <= whole]
    return [Mark(100 * mark / whole, f"{mark:g}") for mark in at], unit


def cold_start_chart(
    cold_starts: Iterable[Mapping[str, Any]], began_at: float, span_s: float
) -> ColdStartChart | None:
    """When replicas started, one beside the other; `began_at` is second 0 in Unix seconds. None
    where none did."""
    lanes: list[float] = []
    bars: list[Bar] = []
    hidden = 0
    for one in sorted(cold_starts, key=lambda one: str(one["started_at"])):
        left_s = datetime.fromisoformat(one["started_at"]).timestamp() - began_at
        right_s = span_s if one["seconds"] is None else left_s + one["seconds"]
        lane = next((n for n, free_s in enumerate(lanes) if free_s <= left_s), len(lanes))
        if lane == LANES:
            hidden += 1
            continue
        lanes[lane : lane + 1] = [right_s]
        bars += _bars(one, left_s, right_s, lane * LANE, began_at, span_s)
    return ColdStartChart(bars, len(lanes) * LANE, hidden) if lanes else None


def seconds(value: float) -> str:
    """A time as people say it, with about three digits."""
    if value < 0.9995:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


def number(value: float) -> str:
    """A count or a rate, with about three digits behind nothing that is not there."""
    return f"{value:,.0f}" if value >= 99.95 or value == int(value) else f"{value:.3g}"


def _linear(title: str, columns: Mapping[str, Values], filled: Sequence[str] = ()) -> Chart:
    most = max((v for values in columns.values() for v in values if v is not None), default=0)
    lines = marks(most or 1.0, MARKS)
    height = _height(0.0, lines[-1])
    curves = []
    for name, values in columns.items():
        line = _line(values, height)
        area = _area(values, height) if name in filled else ""
        curves.append(Curve(name, NAMES[name], line, area))
    words = "; ".join(_highest(NAMES[name], values, number) for name, values in columns.items())
    return Chart(title, f"{title}: {words}.", curves, _marks(lines, height, number))


def _latency(values: Values) -> Chart:
    """Logarithmic where it is very different; a time of 0 is not drawn then."""
    title = "Latency, 95th percentile of each step"
    known = [value for value in values if value]
    least, most = min(known, default=1.0), max(known, default=1.0)
    words = f"{title}: {_highest(NAMES['p95_s'], values, seconds)}."
    if most < least * LOGARITHMIC:
        lines = marks(most, MARKS)
        height = _height(0.0, lines[-1])
        shown = _marks(lines, height, seconds)
    else:
        title += " (logarithmic)"
        values = [math.log10(value) if value else None for value in values]
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
        height = _height(low, high)
        powers = range(low, high + 1, -(-(high - low) // MARKS))
        shown = [Mark(height(power), seconds(10.0**power)) for power in powers]
    return Chart(title, words, [Curve("p95_s", NAMES["p95_s"], _line(values, height))], shown)


def _replicas(ready: Values, starting: Values) -> Chart:
    """Those that start stand on those that are ready."""
    both = [None if a is None or b is None else a + b for a, b in zip(ready, starting, strict=True)]
    lines = marks(max((value for value in both if value is not None), default=0) or 1.0, MARKS)
    height = _height(0.0, lines[-1])
    curves = [
        Curve("ready", NAMES["ready"], *_stairs(ready, height)),
        Curve("starting", NAMES["starting"], *_stairs(both, height)),
    ]
    words = "; ".join(
        _highest(NAMES[name], values, number)
        for name, values in (("ready", ready), ("starting", starting))
    )
    shown = _marks([line for line in lines if line == int(line)], height, number)
    return Chart("Replicas", f"Replicas: {words}.", curves, shown)


NAMES = {
    "asked": "asked",
    "answered": "answered",
    "refused": "refused",
    "failed": "failed",
    "p95_s": "p95",
    "queued": "queued",
    "in_flight": "in flight",
    "ready": "ready",
    "starting": "starting",
}
"""What the columns of the series are called on the page."""


def _height(least: float, most: float) -> Callable[[float], float]:
    """Where a value is, down from the top."""
    return lambda value: HEIGHT - HEIGHT * (value - least) / (most - least or 1.0)


def _marks(
    lines: Sequence[float], height: Callable[[float], float], text: Callable[[float], str]
) -> list[Mark]:
    """What 0 is needs no word."""
    return [Mark(height(line), text(line) if line else "") for line in lines]


def _highest(name: str, values: Values, text: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return f"{name} up to {text(max(known))}" if known else f"{name} unknown"


def _runs(values: Values) -> Iterable[list[tuple[int, float]]]:
    """The parts without a gap."""
    numbered = enumerate(values)
    for known, some in groupby(numbered, key=lambda one: one[1] is not None):
        if known:
            yield [(place, value) for place, value in some if value is not None]


def _line(values: Values, height: Callable[[float], float]) -> str:
    """From the middle of each step to the next; a step alone is a short stroke."""
    parts = []
    for run in _runs(values):
        points = [f"{place + 0.5:g} {height(value):.2f}" for place, value in run]
        parts.append(f"M{'L'.join(points)}" if len(points) > 1 else f"M{points[0]}h.01")
    return "".join(parts)


def _stairs(values: Values, height: Callable[[float], float]) -> tuple[str, str]:
    """The line and the area of what changes all at once: level through each step."""
    lines, areas = [], []
    for run in _runs(values):
        left = run[0][0]
        level = "".join(f"V{height(value):.2f}H{place + 1}" for place, value in run)
        lines.append(f"M{left} {height(run[0][1]):.2f}{level}")
        areas.append(f"M{left} {HEIGHT:g}{level}V{HEIGHT:g}Z")
    return "".join(lines), "".join(areas)


def _area(values: Values, height: Callable[[float], float]) -> str:
    """What is between the line and the bottom."""
    parts = []
    for run in _runs(values):
        points = "L".join(f"{place + 0.5:g} {height(value):.2f}" for place, value in run)
        left, right = run[0][0] + 0.5, run[-1][0] + 0.5
        parts.append(f"M{left:g} {HEIGHT:g}L{points}L{right:g} {HEIGHT:g}Z")
    return "".join(parts)


def _bars(
    one: Mapping[str, Any],
    left_s: float,
    right_s: float,
    top: int,
    began_at: float,
    span_s: float,
) -> list[Bar]:
    """The whole start, and its phases upon it; weights come beside them and are half as high."""
    took = "not ready yet" if one["seconds"] is None else seconds(one["seconds"])
    whole = _bar("whole", f"{one['replica']}: {took}", left_s, right_s, top, LANE - 3, span_s)
    bars = [whole]
    for phase in one["phases"]:
        name, begun = str(phase["name"]), phase["start"] - began_at
        ended = right_s if phase["end"] is None else phase["end"] - began_at
        known = name if name in PHASES else "other"
        height = (LANE - 3) // 2 if name == "weights" else LANE - 3
        words = f"{one['replica']}: {name} {seconds(max(0.0, ended - begun))}"
        bars.append(_bar(known, words, begun, ended, top, height, span_s))
    return bars


PHASES = ("instance", "environment", "process", "weights", "init")


def _bar(
    phase: str, words: str, left_s: float, right_s: float, top: int, height: int, span_s: float
) -> Bar:
    left, right = (100 * min(span_s, max(0.0, at_s)) / span_s for at_s in (left_s, right_s))
    return Bar(round(left, 3), round(max(LEAST_WIDTH, right - left), 3), top, height, phase, words)
