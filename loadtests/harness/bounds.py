"""What a figure of ours is to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """As a text, and whether a figure reaches it."""

    text: str
    holds: Callable[[float], bool]


def at_most(limit: float) -> Bound:
    return Bound(f"≤ {limit:g}", lambda value: value <= limit)


def at_least(limit: float) -> Bound:
    return Bound(f"≥ {limit:g}", lambda value: value >= limit)


def exactly(wanted: float) -> Bound:
    return Bound(f"{wanted:g}", lambda value: value == wanted)
