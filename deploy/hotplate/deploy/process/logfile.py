"""The log of a replica: a plain file that its process appends to.

The process has nothing but a descriptor of it; with that it can hold a lease, so that whoever opens
the file has to wait. So it is opened like a foreign one, and is as if empty while that lasts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.process.printable import MOST_CHARS, printable
from hotplate.machine.foreign_folder import open_file

MAX_BYTES = 64 << 20
"""A log that has grown beyond this is cut, so that a chatty service cannot fill the disk …"""
KEPT_BYTES = 8 << 20
"""… to its last part of this size."""

_BLOCK_BYTES = 64 << 10
_TAIL_BYTES = 4 << 20
"""A tail goes back no further, however long its lines are."""


def tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines, read from the end, printable; none if there is no such file."""
    if lines <= 0:
        return []
    try:
        fd = open_file(path)
    except OSError:
        return []
    with open(fd, "rb") as file:
        position = end = file.seek(0, os.SEEK_END)
        blocks: list[bytes] = []
        breaks = 0
        while position > 0 and breaks <= lines and end - position < _TAIL_BYTES:
            step = min(_BLOCK_BYTES, position)
            position = file.seek(position - step)
            blocks.append(file.read(step))
            breaks += blocks[-1].count(b"\n")
    text = printable(b"".join(reversed(blocks)).decode(errors="replace"))
    return [line[:MOST_CHARS] for line in text.splitlines()[-lines:]]


def append(path: Path, lines: Iterable[str]) -> None:
    """Add what happened before the process was there to write it; nothing on a full disk."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with suppress(OSError), open(open_file(path, flags), "a") as file:
        file.writelines(f"{line}\n" for line in lines)


def trim(path: Path, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> int:
    """Cut a log above `max_bytes` to its last `kept_bytes`, in place: its writer appends on.

    It begins with a line that says so then, also while a process writes on; lines written in that
    instant may be lost. Needs no room on the disk. Returns its size.
    """
    try:
        size = path.stat().st_size
        if size <= max_bytes:
            return size
        fd = open_file(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    except BlockingIOError:
        return size
    with open(fd, "r+b") as file:
        file.seek(-kept_bytes, os.SEEK_END)
        first, _, whole_lines = file.read(kept_bytes).partition(b"\n")
        note = (
            f"hotplate: this log had grown to {size >> 10} KiB; all but its last part was cut away "
            f"(a log may have {max_bytes >> 10} KiB)\n"
        )
        file.seek(0)
        file.write(note.encode() + (whole_lines or first))
        return file.truncate()
