"""A folder whose files survive a power cut whole: a file is there completely, or not at all.

Each change is a method of its own, so that a test can cut the power after any of them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

PARTIAL = ".partial-"
"""The prefix of files that are not whole."""


class DurableFolder:
    """Every method may raise OSError. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Writes a whole, durable file of that name, in place of the one that was there."""
        fd, partial = self.create("put", len(data))
        try:
            os.pwrite(fd, data, 0)
            self.sync(fd)
            self.rename(partial, name)
            self.sync_names()
        except BaseException:  # also when interrupted: cleaned up, and raised again
            self.remove(partial)
            raise
        finally:
            os.close(fd)

    def create(self, purpose: str, size_bytes: int) -> tuple[int, str]:
        """Makes a new file with all its space; its descriptor, for the caller to close, and its
        name.

        It is another file each time, so that a late write to an abandoned one does no harm.
        """
        fd, path = tempfile.mkstemp(prefix=f"{PARTIAL}{purpose}-", dir=self.root)
        try:
            os.fchmod(fd, 0o444)
            if size_bytes:
                os.posix_fallocate(fd, 0, size_bytes)
        except BaseException:  # also when interrupted: cleaned up, and raised again
            os.close(fd)
            os.unlink(path)
            raise
        return fd, os.path.basename(path)

    def reopen(self, name: str) -> int:
        """A writable descriptor of one of our read-only files; the caller closes it."""
        path = self.root / name
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except PermissionError:
            mode = path.stat().st_mode & 0o777
            path.chmod(mode | 0o200)
            try:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
            finally:
                path.chmod(mode)

    def copy(self, fd: int, source_fd: int, offset: int, length: int) -> None:
        """Copies that part of the source to the same place of `fd`."""
        os.lseek(fd, offset, os.SEEK_SET)
        end = offset + length
        while offset < end:
            offset += os.sendfile(fd, source_fd, offset, end - offset)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, old: str, new: str) -> None:
        os.replace(self.root / old, self.root / new)

    def sync_names(self) -> None:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.root / name)
