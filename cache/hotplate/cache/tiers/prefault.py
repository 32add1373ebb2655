"""Memory that is made ready before it is needed.

Clearing and mapping new memory costs more than receiving and verifying the bytes that go there.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hotplate.cache.tiers.mapped_file import MappedFile

_STEP_BYTES = 2 << 20
"""Made ready in one step: for its milliseconds no other thread can change this process's maps."""

_NICENESS = 10


class Prefault:
    """One file in memory, for the first large file of the arena. Thread-safe."""

    def __init__(self, memory: MappedFile | None, size_bytes: int = 0) -> None:
        """`size_bytes` of it are made ready, unless half of the machine's memory is in use."""
        self._memory = memory
        self._taking = threading.Lock()
        if memory is not None:
            making = (memory, size_bytes)
            threading.Thread(target=self._make, args=making, name="spare", daemon=True).start()

    @property
    def ready_bytes(self) -> int:
        memory = self._memory
        return 0 if memory is None else memory.ready_bytes

    def take(self) -> MappedFile | None:
        """The memory, however much of it is ready, now the caller's. None the second time."""
        with self._taking:
            memory, self._memory = self._memory, None
            return memory

    def close(self) -> None:
        memory = self.take()
        if memory is not None:
            memory.close()

    def _make(self, memory: MappedFile, size_bytes: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with memory.view[:size_bytes]:  # so that it stays mapped, even if it is taken and closed
            while memory.ready_bytes < size_bytes and _half_is_free():
                if not memory.populate(memory.ready_bytes, _STEP_BYTES):
                    return  # the kernel has no more, or the caller of `take` has cut it
                with self._taking:
                    if self._memory is not memory:
                        return
                    memory.ready_bytes += _STEP_BYTES


def _half_is_free() -> bool:
    """Whether half of the machine's memory is free: its agents together take no more than half."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(fields[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return 2 * free > total
