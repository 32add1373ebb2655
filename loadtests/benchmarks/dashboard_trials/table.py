"""A row of the table about the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.harness.bounds import Bound, BoundedRow, verdict
from loadtests.harness.report import column


@dataclass(frozen=True)
class Row(BoundedRow):
    got: float | None = column("got")
    tries: int | None = column("tries")
    digits: int = 2


def bounded(figure: str, bound: Bound, value: float, tries: int = 1) -> Row:
    """A figure with what it has to reach."""
    return Row(figure, bound.text, verdict(bound.holds(value)), value, tries)


def shown(figure: str, value: float, tries: int = 1) -> Row:
    """One that has no bound."""
    return Row(figure, got=value, tries=tries)


def p95(values: Sequence[float]) -> float:
    """The nearest rank."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]
