"""What a figure of ours is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """A bound as text, and the check whether a figure reaches it."""

    text: str
    holds: Callable[[float], bool]


@dataclass(frozen=True)
class BoundedRow:
    """The first columns of a table in which some figures have a bound."""

    figure: str
    """With its unit."""
    bound: str = ""
    """What our figure has to reach; empty = nothing."""
    holds: str = ""
    """`verdict`, or empty where there is no bound."""


def verdict(holds: bool) -> str:
    """How a row says whether its bound holds."""
    return "yes" if holds else "NO"


def at_most(limit: float) -> Bound:
    return Bound(f"≤ {limit:g}", lambda value: value <= limit)


def at_least(limit: float) -> Bound:
    return Bound(f"≥ {limit:g}", lambda value: value >= limit)


def exactly(wanted: float) -> Bound:
    return Bound(f"{wanted:g}", lambda value: value == wanted)
