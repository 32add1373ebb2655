"""A file in memory that this process has mapped for writing."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time

from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.huge_pages import HugePages
from hotplate.cache.tiers.protected_file import HugeMount, ProtectedFile, SealedFile

_MADV_NOHUGEPAGE = 15
_MADV_POPULATE_WRITE = 23
"""Maps a part's pages in one call (Linux 5.14): three times faster than a fault for each."""

_libc = ctypes.CDLL(None)


class MappedFile:
    """Address space for `capacity_bytes`; only the part that is reserved takes memory."""

    def __init__(self, name: str, capacity_bytes: int, mount: HugeMount | None = None) -> None:
        """Raises NoSpace when the kernel refuses."""
        self.ready_bytes = 0
        """How many bytes are reserved, from the start on."""
        with contextlib.ExitStack() as undo:
            try:
                self.file: ProtectedFile = (
                    SealedFile(name, capacity_bytes)
                    if mount is None
                    else mount.create(capacity_bytes)
                )
                undo.callback(self.file.close)
                self._map = mmap.mmap(self.file.fd, capacity_bytes)
            except OSError as exc:
                raise NoSpace(
                    f"no memory for {name} of {capacity_bytes} bytes ({exc.strerror})"
                ) from exc
            undo.pop_all()
        with contextlib.suppress(OSError):  # refused where the kernel has no huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._map)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def reserve(self, offset: int, length: int, pages: HugePages) -> None:
        """Clears and maps that part, unless that is done. Raises NoSpace."""
        if offset + length <= self.ready_bytes:
            return
        if pages.huge():
            before_s = time.thread_time()
            self._allocate(offset, length)
            # Where the kernel refuses, pages are mapped one by one as they are written.
            self.populate(offset, length)
            pages.took(time.thread_time() - before_s, length)
        # What is allocated by a fault heeds the advice; what is allocated for the file does not.
        elif not (self._advise(offset, length, _MADV_NOHUGEPAGE) and self.populate(offset, length)):
            self._allocate(offset, length)

    def populate(self, offset: int, length: int) -> bool:
        """Maps that part, and clears new pages of it; whether the kernel could."""
        return self._advise(offset, length, _MADV_POPULATE_WRITE)

    def close(self) -> None:
        """Releases it. The memory lives on as long as a process maps it, or a thread has a
        slice."""
        self.file.close()
        del self.view, self._map

    def _allocate(self, offset: int, length: int) -> None:
        try:
            os.posix_fallocate(self.file.fd, offset, length)
        except OSError as exc:
            raise NoSpace(
                f"the node's memory is full: {length} bytes more were refused ({exc.strerror}); "
                "lower the arena's limit"
            ) from exc

    def _advise(self, offset: int, length: int, advice: int) -> bool:
        # Not mmap.madvise, which keeps the interpreter's lock for as long as this takes.
        start, size = ctypes.c_void_p(self._address + offset), ctypes.c_size_t(length)
        return bool(_libc.madvise(start, size, advice) == 0)
