"""The phases that a replica's own process records, as a file of JSON lines that it appends to.

A line is `{"phase", "event": "begin" | "end", "at": Unix seconds}`. Python >= 3.9: the process
writes it. The engine that started the process reads it without trusting it, because a bento's code
can write there too.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotplate.serving.streaming.start_clock import unix_now

FILE_NAME = "phases.jsonl"
NAMES = ("process", "init", "weights")
MOST_BYTES = 64 << 10
"""Limit of the file in bytes: a thousand times what a start records."""


@dataclass(frozen=True)
class JournalPhase:
    """A part of a cold start. Times are Unix seconds; `end` is None while it lasts."""

    name: str
    start: float
    end: float | None = None


class Journal:
    """Appends to one journal file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def note(self, phase: str, event: str, at: float | None = None) -> None:
        """Adds a line, in one write; `at` is Unix seconds, by default now. On a full disk the line
        is left out, because a phase that is not known is better than a failed start."""
        when = unix_now() if at is None else at
        line = json.dumps({"phase": phase, "event": event, "at": when})
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def phases_in(content: bytes) -> tuple[JournalPhase, ...]:
    """The phases that have begun, in that order, from the content of such a file; invalid lines are
    skipped."""
    times = {}
    for line in content[:MOST_BYTES].split(b"\n")[:-1]:
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            entry = json.loads(line)
            at = float(entry["at"])
            if entry["phase"] in NAMES and entry["event"] in ("begin", "end") and math.isfinite(at):
                times[entry["phase"], entry["event"]] = at
    return tuple(
        JournalPhase(name, start, times.get((name, "end")))
        for (name, event), start in times.items()
        if event == "begin"
    )
