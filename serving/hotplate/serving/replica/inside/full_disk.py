"""What a full disk may cost a replica: log lines and metrics, never a request or its life.

Without this a `print` in a handler raises, and a write to the map of one of prometheus_client's
files, which are made with holes, ends the process with SIGBUS. Python >= 3.9, standard library
only.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib.util import find_spec
from typing import Any, TextIO

_FULL = (errno.ENOSPC, errno.EDQUOT)


def survive_full_disk() -> None:
    """Makes a full disk harmless. Call it before anything keeps `sys.stdout` or makes a metric."""
    sys.stdout = log_stream(sys.stdout)
    sys.stderr = log_stream(sys.stderr)
    if find_spec("prometheus_client"):
        import prometheus_client.mmap_dict as metrics

        vars(metrics)["open"] = open_metrics  # hides the builtin, in that module alone


def log_stream(stream: TextIO) -> TextIO:
    """The same descriptor, unbuffered; what does not fit on the disk is left out."""
    raw: Any = LogFile(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw, stream.encoding, stream.errors, line_buffering=True, write_through=True
    )


class LogFile(io.FileIO):
    """Counts what was left out, and writes that where it is missing."""

    left_out_bytes = 0

    def write(self, data: Any) -> int:
        """Writes everything, or leaves it out. Raises OSError for anything but a full disk."""
        rest = memoryview(data).cast("B")
        size_bytes = rest.nbytes
        try:
            if self.left_out_bytes:
                note = f"\n[{self.left_out_bytes} bytes are missing here: the disk was full]\n"
                super().write(note.encode())
                self.left_out_bytes = 0
            while rest.nbytes:
                rest = rest[super().write(rest) or 0 :]
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self.left_out_bytes += rest.nbytes
        return size_bytes


def open_metrics(path: str, mode: str) -> Any:
    """The `open` of prometheus_client's files."""
    if mode != "a+b":
        return open(path, mode)
    try:
        return MetricsFile(path, "a+b")
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return MetricsFile(os.memfd_create("metrics"), "r+b")


class MetricsFile(io.FileIO):
    """A file without holes, so that a write to its map always finds its block. On a full disk it
    goes on in memory, and `/metrics` lacks this process's metrics."""

    def truncate(self, size: int | None = None) -> int:
        size_bytes = self.tell() if size is None else size
        try:
            os.posix_fallocate(self.fileno(), 0, size_bytes)
        except OSError:
            self._go_on_in_memory(size_bytes)
        return size_bytes

    def _go_on_in_memory(self, size_bytes: int) -> None:
        if not os.fstat(self.fileno()).st_size:
            super().truncate(size_bytes)  # a reader of `/metrics` finds an empty file
        memory = os.memfd_create("metrics")
        try:
            os.write(memory, os.pread(self.fileno(), size_bytes, 0))
            os.ftruncate(memory, size_bytes)
            os.dup2(memory, self.fileno(), inheritable=False)
        finally:
            os.close(memory)
