"""The arena: the node's memory of file bytes, shared read-only with replicas.

One memfd per blob, in the file's own layout. The agent maps it for writing, then seals it, then
lends descriptors. A read-only descriptor alone would protect nothing: `/proc/self/fd/N` can be
opened again for writing. The seals leave the agent's own map as the only one that writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import threading
from pathlib import Path

from hotplate.cache.errors import NoSpace

_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x01
_F_SEAL_SHRINK = 0x02
_F_SEAL_GROW = 0x04
_F_SEAL_FUTURE_WRITE = 0x10
"""From linux/fcntl.h; Python's fcntl lacks the last one before 3.13."""

_MADV_POPULATE_WRITE = 23
"""Maps a chunk's pages in one call (Linux 5.14): three times faster than a fault for each."""

_libc = ctypes.CDLL(None)


class Region:
    """A blob's memory in the arena: `view` is the agent's writable map of it."""

    def __init__(self, name: str, size_bytes: int) -> None:
        """Raises NoSpace when the kernel refuses."""
        self.size_bytes = size_bytes
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, size_bytes)
            self._map = mmap.mmap(self._fd, size_bytes)
            seals = _F_SEAL_FUTURE_WRITE | _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL
            fcntl.fcntl(self._fd, _F_ADD_SEALS, seals)
        except OSError as exc:
            os.close(self._fd)
            raise NoSpace(f"no memory for {name} of {size_bytes} bytes ({exc.strerror})") from exc
        with contextlib.suppress(OSError):  # refused where the kernel has no huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._map)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def reserve(self, offset: int, length: int) -> None:
        """Allocates that part before it is written; without this a full memory kills the agent.

        Done chunk by chunk on the fetching threads, because the kernel zeroes what it gives and
        a whole model would delay its first byte by seconds. Raises NoSpace.
        """
        try:
            os.posix_fallocate(self._fd, offset, length)
        except OSError as exc:
            raise NoSpace(
                f"the node's memory is full: {length} bytes more were refused ({exc.strerror}); "
                "lower the arena's limit"
            ) from exc
        # Not mmap.madvise, which keeps the interpreter's lock for as long as this takes. Where
        # the kernel refuses, pages are mapped one by one as they are written.
        _libc.madvise(
            ctypes.c_void_p(self._address + offset), ctypes.c_size_t(length), _MADV_POPULATE_WRITE
        )

    def lend(self) -> int:
        """A new read-only descriptor; the caller closes it."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Lets go. The memory lives on for whoever still maps it, or still writes to a slice."""
        os.close(self._fd)
        del self.view, self._map


class Arena:
    """Regions within a limit. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def lacks(self, size_bytes: int) -> int:
        """How many bytes must go before a blob of that size fits (0: it fits)."""
        return max(0, self._used_bytes + size_bytes - self.limit_bytes)

    def allocate(self, digest: str, size_bytes: int) -> Region:
        """A sealed region for that blob. Raises NoSpace."""
        with self._lock:
            if self.lacks(size_bytes):
                raise NoSpace(
                    f"arena: blob {digest} needs {size_bytes} bytes, {self._used_bytes} of "
                    f"{self.limit_bytes} are used"
                )
            region = Region(digest, size_bytes)
            self._used_bytes += size_bytes
            return region

    def release(self, region: Region) -> None:
        region.close()
        with self._lock:
            self._used_bytes -= region.size_bytes


def memory_limit_bytes() -> int:
    """A quarter of this cgroup's memory limit, or of the machine's memory where none is set.

    Replicas are promised what is left. A model that the arena has no room for is read from disk.
    """
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return min(int(Path(path).read_text()), _machine_bytes()) // 4
    return _machine_bytes() // 4


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
