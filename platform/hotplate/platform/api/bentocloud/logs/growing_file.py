"""The text that others append to a file, as it comes."""

from __future__ import annotations

import codecs
import os
from contextlib import suppress
from pathlib import Path

from hotplate.deploy.process.printable import printable
from hotplate.machine.foreign_folder import open_file

PIECE_BYTES = 256 << 10
"""Read at a time; also how far back the last lines are looked for."""


class GrowingFile:
    """Its last lines first, then whatever is new. It may come into being later, or be replaced."""

    def __init__(self, path: Path, lines: int) -> None:
        """`lines` is how many of those that are there already are read."""
        self._path = path
        self._lines = lines
        self._file = -1
        self._opened: tuple[int, int] = (0, 0)
        """Device and inode."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> str:
        """What is new, of at most 256 KiB; "" where there is nothing. No character is cut."""
        data = os.read(self._file, PIECE_BYTES) if self._file >= 0 else b""
        if not data and self._reopen():
            data = self._last_lines()
        return printable(self._decoder.decode(data))

    def close(self) -> None:
        """Close the file; nothing is read after it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

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
                return True
            os.close(file)
        return False

    def _last_lines(self) -> bytes:
        size = os.fstat(self._file).st_size
        os.lseek(self._file, max(0, size - PIECE_BYTES), os.SEEK_SET)
        data = os.read(self._file, PIECE_BYTES)
        return b"".join(data.splitlines(keepends=True)[-self._lines :])
