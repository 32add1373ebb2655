"""What a replica answers `GET /hotplate/report`: its start, as it has noted it itself. Python >=
3.9, standard library only.

A bento's code can write what is read here, so whoever asks trusts it no further than that code; it
is bounded as the files are that it is made of.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotplate.serving.replica.inside import journal, methods, modules
from hotplate.serving.streaming.start_clock import launched_at

MOST_BYTES = modules.MOST_BYTES + methods.MOST_BYTES + journal.MOST_BYTES
"""Limit of the answer in bytes."""


def report(job: dict[str, Any]) -> dict[str, Any]:
    """`phases` by name, each from and to how many seconds after the launcher began (null = it goes
    on), `methods` and `modules` as those files have them, null where there is none."""
    notes = Path(job["journal"])
    phases = journal.phases_in(_beginning(notes, journal.MOST_BYTES))
    launched = launched_at()
    if launched is None:
        launched = min((phase.start for phase in phases), default=0.0)
    described = _beginning(notes.with_name(methods.FILE_NAME), methods.MOST_BYTES)
    imported = _beginning(Path(job["modules"]), modules.MOST_BYTES)
    return {
        "phases": {
            phase.name: [
                phase.start - launched,
                None if phase.end is None else phase.end - launched,
            ]
            for phase in phases
        },
        "methods": methods.noted_in(described),
        "modules": modules.noted_in(imported),
    }


def dumped(said: dict[str, Any]) -> bytes:
    """As JSON, without the modules where that would be too long."""
    content = json.dumps(said).encode()
    return content if len(content) <= MOST_BYTES else json.dumps({**said, "modules": None}).encode()


def _beginning(path: Path, most_bytes: int) -> bytes:
    """The beginning of a file; empty if it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(most_bytes)
    return b""
