"""A picture of a simulated run: demand, replicas and waits over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hotplate.autoscaler.simulator.fleet import SimulatedDeployment
from hotplate.autoscaler.simulator.timeline import timeline
from hotplate.platform.axis_marks import marks
from hotplate.platform.commands.drawing import Drawing, Label, Stroke, png_painter, svg
from hotplate.platform.errors import BadSetting

WIDTH, HEIGHT = 900, 160
"""Size of one curve, in units of the drawing."""
LEFT, RIGHT, ABOVE, BETWEEN, BELOW = 80, 30, 60, 40, 50
"""Room for the titles and the figures of the axes."""
UNITS_S = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
LEAST = 3
"""Times are told in the largest unit of which there are so many."""


def form(path: Path) -> Callable[[Drawing], bytes]:
    """How a file of that name is written. Raises BadSetting."""
    suffix = path.suffix.lower()
    if suffix == ".svg":
        return svg
    if suffix != ".png":
        raise BadSetting(f"--plot {path}: the plot is an SVG or a PNG; name a file *.svg or *.png")
    try:
        return png_painter()
    except ImportError as error:
        raise BadSetting(
            f"--plot {path}: a PNG needs the Python package pillow; install it or name a file *.svg"
        ) from error


def drawn(policy: str, fleets: Sequence[SimulatedDeployment]) -> Drawing:
    """One curve below the other, over the same time."""
    line = timeline(fleets)
    curves = {
        "requests in flight and queued": line.demand,
        "replicas: starting, ready and draining": line.replicas,
        "mean wait of the requests that came in that time, seconds": line.wait_s,
    }
    requests = sum(len(fleet.waits_s) for fleet in fleets)
    title = f"{policy}: {_count(requests, 'request')} to {_count(len(fleets), 'deployment')}"
    shapes: list[Stroke | Label] = [Label((LEFT, 26), title, size=16)]
    for number, (name, values) in enumerate(curves.items()):
        top = ABOVE + number * (HEIGHT + BETWEEN)
        shapes += _curve(top, name, values)
    bottom = ABOVE + len(curves) * (HEIGHT + BETWEEN) - BETWEEN
    shapes += _times(bottom, line.bin_s, len(line.demand))
    return Drawing(LEFT + WIDTH + RIGHT, bottom + BELOW, shapes)


def _curve(top: float, name: str, values: Sequence[float]) -> list[Stroke | Label]:
    """From 0 to the first mark that is not below its highest value."""
    bottom, right = top + HEIGHT, LEFT + WIDTH
    lines = marks(max(values) or 1.0, 4)
    shapes: list[Stroke | Label] = [Label((LEFT, top - 9), name)]
    for mark in lines:
        height = bottom - HEIGHT * mark / lines[-1]
        shapes.append(Stroke([(LEFT, height), (right, height)], "lightgrey"))
        shapes.append(Label((LEFT - 6, height + 4), f"{mark:,.9g}", "end"))
    points = [
        (LEFT + WIDTH * (place + 0.5) / len(values), bottom - HEIGHT * value / lines[-1])
        for place, value in enumerate(values)
    ]
    ends = (LEFT, bottom), (right, bottom)
    shapes.append(Stroke([ends[0], *points, ends[1]], "steelblue", fill="lightsteelblue"))
    return shapes


def _times(bottom: float, bin_s: float, bins: int) -> list[Stroke | Label]:
    """The axis below all curves."""
    span_s = bins * bin_s
    unit = next((unit for unit, s in UNITS_S.items() if span_s >= LEAST * s), "seconds")
    whole = span_s / UNITS_S[unit]
    shapes: list[Stroke | Label] = []
    for mark in marks(whole, 10):
        if mark <= whole:
            place = LEFT + WIDTH * mark / whole
            shapes.append(Stroke([(place, bottom), (place, bottom + 5)], "black"))
            shapes.append(Label((place, bottom + 18), f"{mark:,.9g}", "middle"))
    words = f"{unit} since the first request; each point is the mean of {_time(bin_s)}"
    shapes.append(Label((LEFT + WIDTH / 2, bottom + 38), words, "middle"))
    return shapes


def _time(seconds: float) -> str:
    unit = next((unit for unit, s in UNITS_S.items() if seconds >= LEAST * s), "seconds")
    return f"{seconds / UNITS_S[unit]:.3g} {unit}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + "s" * (number != 1)
