"""What a figure of ours is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """As a text, and whether a figure reaches it."""

    text: str
    holds: Callable[[float], bool]


@dataclass(frozen=True)
class BoundedRow:
    """What a table's row begins with where some of its figures have a bound."""

    figure: str
    """With its unit."""
    bound: str = ""
    """What is to be reached; empty = it is shown beside the others only."""
    holds: str = ""
    """Empty where there is nothing to reach."""


def verdict(holds: bool) -> str:
    """How a row says whether its bound holds."""
    return "yes" if holds else "NO"


def at_most(limit: float) -> Bound:
    return Bound(f"≤ {limit:g}", lambda value: value <= limit)


def at_least(limit: float) -> Bound:
    return Bound(f"≥ {limit:g}", lambda value: value >= limit)


def exactly(wanted: float) -> Bound:
    return Bound(f"{wanted:g}", lambda value: value == wanted)
