"""A memory control group of a storm's own, in which the kernel kills for want of memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loadtests.harness.child_process import BenchmarkFailed

_ROOT = Path("/sys/fs/cgroup")
GONE_S = 10.0


class MemoryGroup:
    """`kills` counts the processes that the kernel has killed in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, pid: int) -> None:
        """Moves the process in, with all its threads; what it has used before is not counted."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    @property
    def kills(self) -> int:
        for name in ("memory.oom_control", "memory.events"):  # of version 1, of version 2
            with suppress(FileNotFoundError):
                lines = (self._folder / name).read_text().splitlines()
                return next((int(n) for key, n in map(str.split, lines) if key == "oom_kill"), 0)
        return 0


@contextmanager
def memory_group(name: str, limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group of that limit until the block ends; whoever is left in it goes back to its parent.

    Raises BenchmarkFailed where none can be made.
    """
    folder = _parent() / name
    try:
        folder.mkdir()
    except OSError as error:
        raise BenchmarkFailed(f"no memory control group can be made here: {error}") from None
    try:
        for file in ("memory.limit_in_bytes", "memory.max"):
            if (folder / file).exists():
                (folder / file).write_text(str(limit_bytes))
        yield MemoryGroup(folder)
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended meanwhile
                (folder.parent / "cgroup.procs").write_text(pid)
        _remove(folder)


def _parent() -> Path:
    """Our own group, of the hierarchy that has the memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path.lstrip("/")
    return _ROOT


def _remove(folder: Path) -> None:
    ends_at = time.monotonic() + GONE_S
    while folder.exists() and time.monotonic() < ends_at:
        with suppress(OSError):  # its last process is not reaped yet
            folder.rmdir()
            return
        time.sleep(0.05)  # the kernel does not say when a group is empty
