"""The log of a replica: a plain file that its process appends to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 64 << 20
"""A log that has grown beyond this is cut, so that a chatty service cannot fill the disk …"""
KEPT_BYTES = 8 << 20
"""… to its last part of this size."""

_BLOCK_BYTES = 64 << 10
_TAIL_BYTES = 4 << 20
"""A tail goes back no further, however long its lines are."""


def tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines, read from the end; none if there is no such file."""
    if lines <= 0:
        return []
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return []
    with file:
        position = end = file.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        breaks = 0
        while position > 0 and breaks <= lines and end - position < _TAIL_BYTES:
            step = min(_BLOCK_BYTES, position)
            position = file.seek(position - step)
            blocks.append(file.read(step))
            breaks += blocks[-1].count(b"\n")
    return b"".join(reversed(blocks)).decode(errors="replace").splitlines()[-lines:]


def append(path: Path, lines: Iterable[str]) -> None:
    """Add what happened before the process was there to write it; nothing on a full disk."""
    with suppress(OSError), path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def trim(path: Path, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> int:
    """Cut a log above `max_bytes` to its last `kept_bytes`, in place: its writer appends on.

    It begins with a line that says so then, also while a process writes on; lines written in that
    instant may be lost. Needs no room on the disk. Returns its size.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= max_bytes:
        return size
    with path.open("r+b") as file:
        file.seek(-kept_bytes, os.SEEK_END)
        first, _, whole_lines = file.read(kept_bytes).partition(b"\n")
        note = (
            f"hotplate: this log had grown to {size >> 10} KiB; all but its last part was cut away "
            f"(a log may have {max_bytes >> 10} KiB)\n"
        )
        file.seek(0)
        file.write(note.encode() + (whole_lines or first))
        return file.truncate()
