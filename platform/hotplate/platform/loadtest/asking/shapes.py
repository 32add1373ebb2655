"""How the rate of a load test goes over its time; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TRACE = "trace"
"""The shape whose arrivals are in a file."""


@dataclass(frozen=True)
class LoadShape:
    """A share of the peak rate at each share of the duration, both from 0 to 1."""

    text: str
    """What it is, as the end of a sentence."""
    share: Callable[[float], float]
    mean: float
    """Of `share` over the whole duration."""
    growing: bool = False
    """Whether the share never falls: then users can follow it, who once begun go on asking."""


def _burst(at: float) -> float:
    return 1.0 if 0.4 <= at < 0.6 else 0.1


def _idle_burst(at: float) -> float:
    return 0.0 if 0.2 <= at < 0.8 else 1.0


def _day(at: float) -> float:
    return 0.55 - 0.45 * math.cos(2 * math.pi * at)


def _steps(at: float) -> float:
    return min(4, 1 + math.floor(4 * at)) / 4


SHAPES: Mapping[str, LoadShape] = {
    "constant": LoadShape("the rate is R all the time", lambda at: 1.0, 1.0, growing=True),
    "ramp": LoadShape("the rate grows evenly from 0 to R", lambda at: at, 0.5, growing=True),
    "burst": LoadShape(
        "the rate is a tenth of R, and R in the middle fifth of the duration", _burst, 0.28
    ),
    "idle-burst": LoadShape(
        "the rate is R in the first and the last fifth, and between them nobody asks, so that a "
        "deployment falls asleep if the duration is long enough",
        _idle_burst,
        0.4,
    ),
    "day": LoadShape(
        "the rate follows a day that is pressed into the duration, from a tenth of R at midnight "
        "to R at noon, as a cosine",
        _day,
        0.55,
    ),
    "steps": LoadShape(
        "the rate is a quarter, a half, three quarters of R and R, each for a quarter of the "
        "duration",
        _steps,
        0.625,
        growing=True,
    ),
}
