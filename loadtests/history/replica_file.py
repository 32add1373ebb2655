"""What a replica did. A bento may carry this and `operation.py`: they need the standard library."""

from __future__ import annotations

import os
from pathlib import Path


class ReplicaFile:
    """Appends to what the replica's earlier lives have written."""

    def __init__(self, path: Path, slots: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._write(b"\nup %d\n" % slots)  # the life before may have ended within a line

    def begun(self, number: int, at: float) -> None:
        self._write(b"begun %d %.6f\n" % (number, at))

    def over(self, number: int, at: float) -> None:
        self._write(b"over %d %.6f\n" % (number, at))

    def _write(self, line: bytes) -> None:
        os.write(self._file, line)
