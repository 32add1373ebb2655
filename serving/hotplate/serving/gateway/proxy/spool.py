"""Long bodies that wait until they are whole: a file without a name for each."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO

PIECE_BYTES = 256 << 10
"""How much is read at once on the way to a replica."""


class SpoolSpace:
    """The space that the files of one route may fill."""

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes

    def has(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more may be written."""
        return self.used_bytes + size_bytes <= self._limit_bytes()


class Spool:
    """One body, or the end of one: written as it comes, read once from the beginning."""

    def __init__(self, room: SpoolSpace) -> None:
        self.size_bytes = 0
        self._space = room
        self._file: IO[bytes] | None = None
        self._taken_bytes = 0
        self._before: deque[bytes] = deque()
        """Pieces in memory that come before what is in the file."""

    def begin_with(self, pieces: Iterable[bytes]) -> None:
        """Puts these pieces before what was written; they stay in memory until they are taken."""
        self._before.extend(pieces)

    def put(self, data: bytes) -> None:
        """Writes more. Raises OSError if the disk takes no more."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, self.size_bytes)
            self.size_bytes += written
            self._space.used_bytes += written
            rest = rest[written:]

    def take(self) -> bytes:
        """Removes and returns the next piece; empty = everything was taken."""
        if self._before:
            return self._before.popleft()
        if self._file is None:
            return b""
        data = os.pread(self._file.fileno(), PIECE_BYTES, self._taken_bytes)
        self._taken_bytes += len(data)
        return data

    def close(self) -> None:
        self._space.used_bytes -= self.size_bytes
        self.size_bytes = 0
        self._before.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
