"""A picture of a simulated run: demand, replicas and waits over time, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from hotplate.autoscaler.simulator.fleet import Fleet
from hotplate.autoscaler.simulator.timeline import timeline
from hotplate.platform.errors import BadSetting

HOUR_S = 3600.0
WIDTH, HEIGHT = 900, 180
"""Of one curve, in pixels."""
LEFT, ABOVE, BELOW = 60, 40, 30
"""Room for the figures of the axes and the title, in pixels."""


def plot(path: Path, policy: str, fleets: Sequence[Fleet]) -> None:
    """Write the picture. Raises BadSetting."""
    line = timeline(fleets)
    curves = {
        "requests in flight and queued": line.demand,
        "replicas": line.replicas,
        "mean wait, s": line.wait_s,
    }
    parts = [_curve(number, title, values) for number, (title, values) in enumerate(curves.items())]
    whole = ABOVE + len(curves) * (HEIGHT + BELOW) + BELOW
    hours = [line.at_s[0] / HOUR_S, line.at_s[-1] / HOUR_S]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + LEFT}" height="{whole}" '
        'font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{LEFT}" y="{ABOVE // 2}" font-size="15">{escape(policy)}</text>\n'
        f"{''.join(parts)}"
        f'<text x="{LEFT}" y="{whole - BELOW // 2}">{hours[0]:.2f} h</text>\n'
        f'<text x="{LEFT + WIDTH}" y="{whole - BELOW // 2}" text-anchor="end">{hours[1]:.2f} h'
        "</text>\n</svg>\n"
    )
    try:
        path.write_text(picture)
    except OSError as error:
        raise BadSetting(f"--plot {path} cannot be written: {error.strerror}") from error


def _curve(number: int, title: str, values: Sequence[float]) -> str:
    """One curve below the others, from 0 to its highest value."""
    top = ABOVE + number * (HEIGHT + BELOW)
    bottom = top + HEIGHT
    most = max(values) or 1.0
    points = " ".join(
        f"{LEFT + WIDTH * (place + 0.5) / len(values):.1f},{bottom - HEIGHT * value / most:.1f}"
        for place, value in enumerate(values)
    )
    return (
        f'<polyline points="{LEFT},{bottom} {points} {LEFT + WIDTH},{bottom}" '
        'fill="lightsteelblue" stroke="steelblue"/>\n'
        f'<text x="{LEFT}" y="{top - 6}">{escape(title)}</text>\n'
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:.3g}</text>\n'
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>\n'
    )
