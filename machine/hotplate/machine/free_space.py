"""Room on a disk, and the reserve of it that bulk writers leave alone.

Uploads, copies of models and environments are refused while less than the reserve is free, so that
what is small and must be written (the database, records, logs, what replicas write) never meets a
disk that we have filled.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

RESERVE_SHARE = 0.05
"""What file systems keep for root, for the same reason."""
RESERVE_MAX_BYTES = 1 << 30

_FULL = (errno.ENOSPC, errno.EDQUOT)


class FreeSpace:
    """The disk that a folder is on."""

    def __init__(self, folder: Path, reserve_bytes: int = 0) -> None:
        """`reserve_bytes` 0 = 5 % of the disk, at most 1 GiB. The folder may be made later."""
        self.folder = folder
        self._reserve_bytes = reserve_bytes

    @property
    def shortage(self) -> str:
        """What an operator is told while the reserve is touched; empty when it is not."""
        free_bytes, reserve_bytes = self._measured()
        if free_bytes >= reserve_bytes:
            return ""
        return (
            f"the disk of {self.folder} has {mib(free_bytes)} free, less than the "
            f"{mib(reserve_bytes)} that are kept free (disk_reserve_bytes): uploads, models and "
            "environments wait; free some space"
        )

    def refusal(self, size_bytes: int) -> str:
        """Why so many bytes more may not be written; empty when the reserve stays whole."""
        free_bytes, reserve_bytes = self._measured()
        if free_bytes - size_bytes >= reserve_bytes:
            return ""
        return (
            f"the disk of {self.folder} is full: {mib(size_bytes)} more are needed and "
            f"{mib(free_bytes)} are free, of which {mib(reserve_bytes)} are kept free "
            "(disk_reserve_bytes); free some space"
        )

    def lacks(self, size_bytes: int) -> int:
        """How many bytes must be freed before so many more leave the reserve untouched."""
        free_bytes, reserve_bytes = self._measured()
        return max(0, size_bytes + reserve_bytes - free_bytes)

    def _measured(self) -> tuple[int, int]:
        """Bytes that are free, and how many of them are the reserve."""
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        disk = shutil.disk_usage(folder)
        usual_bytes = min(RESERVE_MAX_BYTES, int(disk.total * RESERVE_SHARE))
        return disk.free, self._reserve_bytes or usual_bytes


def is_full(error: BaseException) -> bool:
    """Whether an operation failed because a disk, or somebody's share of it, is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def full(error: OSError, folder: Path) -> str:
    """What a person is told of an error of which `is_full` holds."""
    return f"the disk of {error.filename or folder} is full; free some space"


def mib(size_bytes: int) -> str:
    """MiB; the next larger number, so that what is needed is never shown as nothing."""
    return f"{-(-size_bytes >> 20)} MiB" if size_bytes >= 1 << 20 else f"{size_bytes} bytes"
