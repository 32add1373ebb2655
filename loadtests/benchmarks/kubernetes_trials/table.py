"""A row of the table about a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.harness.bounds import Bound, BoundedRow, verdict
from loadtests.harness.report import column


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("hotplate")
    peer: float | None = column("kubernetes alone")
    digits: int = 2


def bounded(figure: str, bound: Bound, value: float, digits: int = 2) -> Row:
    """A figure with what it has to reach."""
    return Row(figure, bound.text, verdict(bound.holds(value)), value, digits=digits)
