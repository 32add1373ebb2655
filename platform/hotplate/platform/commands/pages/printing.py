"""Pages for people, in lines no longer than what they are printed on is wide."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hotplate.deploy.process.printable import printable

COLUMNS = 80
"""Where nobody says how wide a line may be: in a pipe or a file."""


def page_console() -> Console:
    """For standard output, as wide as its terminal, whatever the environment says of others.

    Its lines are wrapped at words, and never cut.
    """
    return Console(highlight=False, emoji=False, width=_columns())


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or COLUMNS
    except (OSError, ValueError):  # it is no terminal, or no file at all
        return COLUMNS


def say(console: Console, text: str, lead: str = "", hang: str | None = None) -> None:
    """Print `text`, which is markup, behind `lead`, and its further lines behind `hang`.

    Without `hang` those begin below the first one's text.
    """
    further = " " * cell_len(lead) if hang is None else hang
    room = max(1, console.width - max(cell_len(lead), cell_len(further)))
    written = Text.from_markup(printable(text), emoji=False)
    written.expand_tabs(8)
    for line in written.wrap(console, room):
        line.rstrip()
        console.print(Text(lead).append_text(line), soft_wrap=True)
        lead = further


def in_columns(rows: Sequence[tuple[str, ...]], widest: tuple[int, ...]) -> list[str]:
    """A line of plain text per row; a cell wider than `widest` pushes on those after it."""
    widths = [
        min(most, max(cell_len(row[column]) for row in rows)) for column, most in enumerate(widest)
    ]
    return [
        "  ".join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
