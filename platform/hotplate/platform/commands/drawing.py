"""A drawing of lines and words, written as SVG or PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Literal

DENSITY = 2
"""Pixels of a PNG per unit."""
SMOOTHING = 2
"""A PNG is painted so many times larger, which makes its edges smooth."""

Point = tuple[float, float]
"""Right and down from the upper left corner, in units."""


@dataclass(frozen=True)
class Stroke:
    points: Sequence[Point]
    colour: str
    fill: str | None = None
    """Of what the line encloses, its last point joined to its first."""


@dataclass(frozen=True)
class Label:
    at: Point
    """Of the baseline: its start, middle or end."""
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = 12


@dataclass(frozen=True)
class Drawing:
    """On white; what comes later lies above."""

    width: int
    height: int
    shapes: Sequence[Stroke | Label]


def svg(drawing: Drawing) -> bytes:
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" '
        f'height="{drawing.height}" font-family="sans-serif">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f"{''.join(map(_element, drawing.shapes))}</svg>\n"
    )
    return whole.encode()


def _element(shape: Stroke | Label) -> str:
    if isinstance(shape, Stroke):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        fill = shape.fill or "none"
        return f'<polyline points="{points}" fill="{fill}" stroke="{shape.colour}"/>\n'
    (x, y), anchor = shape.at, shape.anchor
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{shape.size}" text-anchor="{anchor}">'
        f"{escape(shape.text)}</text>\n"
    )


def png_painter() -> Callable[[Drawing], bytes]:
    """A function that writes a PNG. Raises ImportError where Pillow is not installed."""
    from PIL import Image, ImageDraw, ImageFont

    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    scale = DENSITY * SMOOTHING

    def png(drawing: Drawing) -> bytes:
        image = Image.new("RGB", (drawing.width * scale, drawing.height * scale), "white")
        pen = ImageDraw.Draw(image)
        for shape in drawing.shapes:
            if isinstance(shape, Label):
                x, y = shape.at
                font = ImageFont.load_default(shape.size * scale)  # Pillow's own: any machine's
                pen.text((x * scale, y * scale), shape.text, "black", font, anchors[shape.anchor])
                continue
            points = [(x * scale, y * scale) for x, y in shape.points]
            if shape.fill is not None:
                pen.polygon(points, shape.fill)
            pen.line(points, shape.colour, width=scale, joint="curve")
        written = BytesIO()
        image.reduce(SMOOTHING).save(written, "PNG")
        return written.getvalue()

    return png
