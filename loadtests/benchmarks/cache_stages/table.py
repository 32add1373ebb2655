"""The rows of the cache's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadtests.harness.bounds import Bound, BoundedRow, verdict
from loadtests.harness.report import column


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("hotplate")
    ours_load: float | None = column("hotplate load_file")
    raw: float | None = column("raw")
    fsspec: float | None = column("fsspec, load_file")
    aiohttp: float | None = column("aiohttp, load_file")
    fastsafetensors: float | None = column("aiohttp, fastsafetensors")
    runai: float | None = column("runai, S3")
    digits: int = 2
    """How the figures are shown."""


def row(
    figure: str, values: Mapping[str, float], bound: Bound | None = None, digits: int = 2
) -> Row:
    """`values` by the names of `Row`'s columns; the bound is for ours."""
    holds = ""
    if bound is not None:
        holds = verdict("ours" in values and bound.holds(values["ours"]))
    cells: dict[str, Any] = dict(values)
    return Row(figure, bound.text if bound else "", holds, **cells, digits=digits)
