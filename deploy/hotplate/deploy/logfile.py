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


def tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines, read from the end; none if there is no such file."""
    if lines <= 0:
        return []
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return []
    with file:
        position = file.seek(0, os.SEEK_END)
        text = b""
        while position > 0 and text.count(b"\n") <= lines:
            step = min(_BLOCK_BYTES, position)
            position = file.seek(position - step)
            text = file.read(step) + text
    return text.decode(errors="replace").splitlines()[-lines:]


def append(path: Path, lines: Iterable[str]) -> None:
    """Add what happened before the process was there to write it; nothing on a full disk."""
    with suppress(OSError), path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def trim(path: Path, max_bytes: int = MAX_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
    """Cut a log above `max_bytes` to its last `kept_bytes`, in place: its writer appends on.

    Lines written in that instant may be lost.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return
    except FileNotFoundError:
        return
    with path.open("r+b") as file:
        file.seek(-kept_bytes, os.SEEK_END)
        kept = file.read()
        file.truncate(0)
    with path.open("ab") as file:
        file.write(kept.partition(b"\n")[2])
