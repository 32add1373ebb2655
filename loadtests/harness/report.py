"""Results as tables. A benchmark's rows are dataclasses whose fields are made by `column`."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import Field, asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from rich.table import Table

DIGITS = "digits"
"""A row's field of this name is not shown: it says how many digits all of its numbers have."""


class Row(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def column(header: str, digits: int = 0) -> Any:
    """A field that is None until it is measured, and the number of digits that are shown."""
    return field(default=None, metadata={"header": header, "digits": digits})


@dataclass(frozen=True)
class StartRow:
    """The first columns of a table of ways to a first answer, each timed several times."""

    way: str
    seconds: float | None = column("first answer s", 2)
    """The median."""
    fastest_s: float | None = column("fastest", 2)
    slowest_s: float | None = column("slowest", 2)


def spread(times_s: Sequence[float]) -> dict[str, float]:
    """The fields of a `StartRow` that say how long it took."""
    return {"seconds": median(times_s), "fastest_s": min(times_s), "slowest_s": max(times_s)}


def table_of(title: str, rows: Sequence[Row], took_s: float) -> Table:
    """One line per row. None is shown as a dash, and a column without values is left out."""
    from rich.box import SIMPLE_HEAD  # rows are measured where it is missing, too
    from rich.table import Table

    columns = _columns(rows)
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=f"measured in {took_s:.0f} s",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for one in columns:
        numeric = "digits" in one.metadata
        table.add_column(_header(one), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*_cells(columns, row))
    return table


def markdown_of(title: str, rows: Sequence[Row]) -> str:
    """The same table in Markdown."""
    columns = _columns(rows)
    lines = [title, "", f"| {' | '.join(map(_header, columns))} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(_cells(columns, row))} |" for row in rows]
    return "\n".join([*lines, ""])


def json_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def machine() -> dict[str, Any]:
    """Where and when it was measured."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def ratio(value: float | None, base: float | None) -> float | None:
    """`value` in units of `base`; None where there is nothing to compare."""
    return value / base if value is not None and base else None


def _header(one: Field[Any]) -> str:
    return str(one.metadata.get("header", one.name.replace("_", " ")))


def _columns(rows: Sequence[Row]) -> list[Field[Any]]:
    """The fields that have a value in some row."""
    return [
        one
        for one in fields(rows[0])
        if one.name != DIGITS and any(getattr(row, one.name) not in (None, "") for row in rows)
    ]


def _cells(columns: Sequence[Field[Any]], row: Row) -> list[str]:
    return [_shown(one, getattr(row, one.name), getattr(row, DIGITS, None)) for one in columns]


def _shown(one: Field[Any], value: object, digits: int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        shown = f"{value:,.{one.metadata.get('digits', 0) if digits is None else digits}f}"
        return shown.removeprefix("-") if not shown.strip("-0.") else shown
    return str(value)
