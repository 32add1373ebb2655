"""Bodies that wait to be whole and are long: a file without a name for each."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO

PIECE_BYTES = 256 << 10
"""Read at once on the way to a replica."""


class SpoolRoom:
    """What the files of one route may fill together."""

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes

    def has(self, size_bytes: int) -> bool:
        """Whether so much more may be written."""
        return self.used_bytes + size_bytes <= self._limit_bytes()


class Spool:
    """One body, or the end of one: written as it comes, read once from its beginning."""

    def __init__(self, room: SpoolRoom) -> None:
        self.size_bytes = 0
        self._room = room
        self._file: IO[bytes] | None = None
        self._taken_bytes = 0
        self._before: deque[bytes] = deque()
        """In memory, before what is in the file."""

    def begin_with(self, pieces: Iterable[bytes]) -> None:
        """Has these go before what was written; it keeps them until they are taken."""
        self._before.extend(pieces)

    def put(self, data: bytes) -> None:
        """Writes more of it. Raises OSError where the disk takes no more."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, self.size_bytes)
            self.size_bytes += written
            self._room.used_bytes += written
            rest = rest[written:]

    def take(self) -> bytes:
        """The next piece; empty = all that was written has been taken."""
        if self._before:
            return self._before.popleft()
        if self._file is None:
            return b""
        data = os.pread(self._file.fileno(), PIECE_BYTES, self._taken_bytes)
        self._taken_bytes += len(data)
        return data

    def close(self) -> None:
        self._room.used_bytes -= self.size_bytes
        self.size_bytes = 0
        self._before.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
