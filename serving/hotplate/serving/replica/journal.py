"""The phases that a replica's own process notes, as a file of JSON lines that it appends to.

A line is `{"phase", "event": "begin" | "end", "at": Unix seconds}`. Python >= 3.9: the process
writes it, whoever started the process reads it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FILE_NAME = "phases.jsonl"


@dataclass(frozen=True)
class Phase:
    """A part of a cold start. Times are Unix seconds; `end` is None while it lasts."""

    name: str
    start: float
    end: float | None = None


class Journal:
    """Appends to and reads one file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def note(self, phase: str, event: str, at: float | None = None) -> None:
        """Add a line, in one write; `at` is Unix seconds, by default now.

        On a full disk the line is left out: a phase that is not known beats a start that failed.
        """
        when = datetime.now(timezone.utc).timestamp() if at is None else at  # noqa: UP017
        line = json.dumps({"phase": phase, "event": event, "at": when})
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def phases(self) -> tuple[Phase, ...]:
        """The phases that have begun, in that order."""
        times = {(line["phase"], line["event"]): float(line["at"]) for line in self._lines()}
        return tuple(
            Phase(name, start, times.get((name, "end")))
            for (name, event), start in times.items()
            if event == "begin"
        )

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]
