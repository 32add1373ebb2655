"""Answers of the API on the terminal: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotplate.deploy.process.printable import printable

WIDTH = 1000
"""Columns of a table at most: a row is one line, which a narrower terminal wraps."""


def print_json(answer: Any) -> None:
    print(json.dumps(answer, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A row in one line each, with whatever could be taken for a command of the terminal shown."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    Console(highlight=False, soft_wrap=True, width=WIDTH).print(table)
