"""The text that others append to a file, as it comes."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.process.printable import printable
from hotplate.machine.foreign_folder import open_file

LOOK_S = 0.3
"""Between two looks at what is followed."""
PIECE_BYTES = 256 << 10
"""Read at a time; also how far back the last lines are looked for."""
OVERLAP_BYTES = 4 << 10
"""So much of what was read is looked for in a file that was cut."""


class GrowingFile:
    """Its last lines first, or all of it, then whatever is new. It may come into being later, be
    replaced, or be cut: in place, to its last part."""

    def __init__(self, path: Path, lines: int | None = None) -> None:
        """`lines` is how many of those that are there already are read; None = all."""
        self._path = path
        self._lines = lines
        self._read = b""
        """The last bytes that were read, by which it is found how far a file was that was cut."""
        self._file = -1
        self._opened: tuple[int, int] = (0, 0)
        """Device and inode."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> str:
        """What is new, of at most 256 KiB; "" where there is nothing. No character is cut."""
        data = self._next()
        if not data and self._file >= 0 and self._find_place():
            data = self._next()
        if not data and self._reopen():
            data = self._next() if self._lines is None else self._last_lines(self._lines)
            self._lines = None  # what replaces it is new
        self._read = (self._read + data)[-OVERLAP_BYTES:]
        return printable(self._decoder.decode(data))

    def close(self) -> None:
        """Close the file; nothing is read after it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _next(self) -> bytes:
        return os.read(self._file, PIECE_BYTES) if self._file >= 0 else b""

    def _find_place(self) -> bool:
        """Whether the file was cut: then its next read is of what was not read yet, or of all of
        it where even that is gone in part."""
        size = os.fstat(self._file).st_size
        if size >= os.lseek(self._file, 0, os.SEEK_CUR):
            return False
        content = os.pread(self._file, size, 0)
        at = content.rfind(self._read) if self._read else -1
        if at < 0:
            self._decoder.reset()
        os.lseek(self._file, at + len(self._read) if at >= 0 else 0, os.SEEK_SET)
        return True

    def _reopen(self) -> bool:
        """Whether there is a file that was not read yet."""
        with suppress(OSError):
            file = open_file(self._path)
            status = os.fstat(file)
            found = (status.st_dev, status.st_ino)
            if self._file < 0 or found != self._opened:
                self.close()
                self._file, self._opened = file, found
                self._decoder.reset()
                self._read = b""
                return True
            os.close(file)
        return False

    def _last_lines(self, lines: int) -> bytes:
        size = os.fstat(self._file).st_size
        os.lseek(self._file, max(0, size - PIECE_BYTES), os.SEEK_SET)
        data = os.read(self._file, PIECE_BYTES)
        return b"".join(data.splitlines(keepends=True)[-lines:])


async def followed(
    path: Path, lines: int | None, goes_on: Callable[[], bool]
) -> AsyncGenerator[str, None]:
    """The last lines that are there and an empty piece, None = all without one, then what comes,
    until it no longer `goes_on` and all was given."""
    file, there = GrowingFile(path, lines), True
    try:
        if lines is not None:
            yield await asyncio.to_thread(file.read)
            yield ""
        while there:
            there = goes_on()
            while piece := await asyncio.to_thread(file.read):
                yield piece
            await asyncio.sleep(LOOK_S if there else 0)
    finally:
        file.close()
