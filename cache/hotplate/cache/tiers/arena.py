"""The arena: the node's memory of file bytes, shared read-only with replicas.

One file in memory per blob, in the blob's own layout. The agent maps it for writing and lends
descriptors that can only be read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.tiers.huge_pages import HugePages
from hotplate.cache.tiers.mapped_file import MappedFile
from hotplate.cache.tiers.prefault import Prefault
from hotplate.cache.tiers.protected_file import HugeMount

log = logging.getLogger(__name__)

LARGE_BYTES = 64 << 20
"""Files from this size on get the memory that was made ready."""


class Region:
    """A blob's memory in the arena: `view` is the agent's writable map of it."""

    def __init__(
        self,
        name: str,
        size_bytes: int,
        memory: MappedFile | None = None,
        pages: HugePages | None = None,
    ) -> None:
        """The region is in `memory`, or in a new memfd. Raises NoSpace when the kernel refuses."""
        self.size_bytes = size_bytes
        self._memory = memory or MappedFile(name, size_bytes)
        self._pages = pages or HugePages()
        try:
            os.ftruncate(self._memory.file.fd, size_bytes)
            self._memory.file.protect()
        except OSError as exc:
            self._memory.close()
            raise NoSpace(f"no memory for {name} of {size_bytes} bytes ({exc.strerror})") from exc
        self.view = self._memory.view[:size_bytes]

    def reserve(self, offset: int, length: int) -> None:
        """Allocates that part before it is written; without this, full memory kills the agent.

        The fetching threads do so chunk by chunk, because the kernel zeroes what it gives: for a
        whole model that would delay the first byte by seconds. Raises NoSpace.
        """
        self._memory.reserve(offset, length, self._pages)

    def part(self, offset: int, length: int) -> memoryview:
        """That part in its place."""
        return self.view[offset : offset + length]

    def put(self, offset: int, part: memoryview) -> None:
        """Does nothing: it is there."""

    def lend(self) -> int:
        """A new descriptor that can only be read; the caller closes it. Raises CacheError."""
        try:
            return self._memory.file.lend()
        except OSError as exc:
            raise CacheError(f"a file in memory cannot be opened ({exc.strerror})") from exc

    def close(self) -> None:
        """Releases it. The memory lives on as long as a process maps it, or a thread has a
        slice."""
        del self.view
        self._memory.close()


class Arena:
    """Regions within a limit. Thread-safe."""

    def __init__(
        self, limit_bytes: int, mount: HugeMount | None = None, spare_bytes: int = 0
    ) -> None:
        """Without a mount of huge pages, each region is a memfd.

        `spare_bytes` are made ready in advance for the first large file.
        """
        self.limit_bytes = limit_bytes
        self._mount = mount
        self._pages = HugePages()
        spare_bytes = min(spare_bytes, limit_bytes)
        memory = MappedFile("spare", limit_bytes, mount) if spare_bytes else None
        self._prefault = Prefault(memory, spare_bytes)
        self._lock = threading.Lock()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def ready_bytes(self) -> int:
        """Memory that is ready for the first large file, as long as that has not come."""
        return self._prefault.ready_bytes

    def lacks(self, size_bytes: int) -> int:
        """How many bytes have to be freed before a blob of that size fits (0: it fits)."""
        return max(0, self._used_bytes + size_bytes - self.limit_bytes)

    def allocate(self, digest: str, size_bytes: int) -> Region:
        """A sealed region for that blob. Raises NoSpace."""
        with self._lock:
            if self.lacks(size_bytes):
                raise NoSpace(
                    f"arena: blob {digest} needs {size_bytes} bytes, {self._used_bytes} of "
                    f"{self.limit_bytes} are used"
                )
            region = Region(digest, size_bytes, self._memory(digest, size_bytes), self._pages)
            self._used_bytes += size_bytes
            return region

    def _memory(self, digest: str, size_bytes: int) -> MappedFile:
        """The prefaulted memory for a large file, once; it is given up when others need its
        bytes."""
        spare = self._prefault.take() if size_bytes >= LARGE_BYTES else None
        if spare is None and self.lacks(size_bytes + self.ready_bytes):
            self._prefault.close()
        return spare or MappedFile(digest, size_bytes, self._mount)

    def close(self) -> None:
        """Regions live on."""
        self._prefault.close()

    def release(self, region: Region) -> None:
        region.close()
        with self._lock:
            self._used_bytes -= region.size_bytes


def huge_mount(folder: Path) -> HugeMount | None:
    """A mount for an arena; None where this process may not mount."""
    try:
        return HugeMount(folder)
    except OSError as exc:
        log.info("memory comes in small pages: a tmpfs cannot be mounted here (%s)", exc.strerror)
        return None


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """A quarter of what this process may have: its control groups' memory, or the machine's.

    Replicas are promised the rest. A model that does not fit into the arena is read from disk.
    `root` holds `proc` and `sys`.
    """
    limits = [_machine_bytes()]
    for path in _limit_files(root):
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            limits.append(int(path.read_text()))
    return min(limits) // 4


def _limit_files(root: Path) -> Iterator[Path]:
    """The limit files of this process's control groups and all above them, of version 1 and 2."""
    groups = ["0::/", "1:memory:/"]
    with contextlib.suppress(OSError):
        groups += (root / "proc/self/cgroup").read_text().splitlines()
    for line in groups:
        _, controllers, name = line.split(":", 2)
        memory = "memory" in controllers.split(",")
        if controllers and not memory:
            continue
        top = root / "sys/fs/cgroup" / ("memory" if memory else "")
        group = top / name.lstrip("/")
        for folder in (group, *group.parents):
            yield folder / ("memory.limit_in_bytes" if memory else "memory.max")
            if folder == top:
                break


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
