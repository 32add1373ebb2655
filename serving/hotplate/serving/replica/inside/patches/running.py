"""How many handlers run in a replica, and how many of them have slots, counted by all of its
processes; Python >= 3.9."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator

from hotplate.serving.replica.inside.patches import begun

ANY, WEBSOCKET, TASK, SLOT, TASK_SLOT = range(5)
ROW = 5
"""The counts of a process: all its handlers, those of WebSockets, those of kept tasks; and the
slots that they have, and those that only kept tasks have."""
CELL_BYTES = 8


class Running:
    """The counts of a replica's processes; each process has a row of its own."""

    def __init__(self, worker: int = 1, workers: int = 1, fd: int | None = None) -> None:
        """`worker` counts from 1. `fd` is memory that `share` made for several."""
        counts = ROW * workers
        shared = mmap.mmap(-1 if fd is None else fd, CELL_BYTES * (counts + begun.CELLS))
        self._lock = -1 if fd is None else fd
        """The memory's file; -1 = it is this process's alone."""
        if fd is not None:
            os.set_inheritable(fd, False)
        cells = memoryview(shared).cast("q")
        self._cells = cells[:counts]
        self.begun = begun.Begun(cells[counts:], self._alone)
        self._own = ROW * (worker - 1)

    @staticmethod
    def share(workers: int) -> int:
        """A descriptor of memory for that many processes; not inheritable by itself."""
        fd = os.memfd_create("hotplate-running")
        os.ftruncate(fd, CELL_BYTES * (ROW * workers + begun.CELLS))
        return fd

    def count(self, kind: int = ANY) -> int:
        """How many handlers, or slots, of that kind there are in all processes."""
        return sum(self._cells[kind::ROW])

    def begin(self, kind: int = ANY) -> None:
        self._change(kind, 1)

    def end(self, kind: int = ANY) -> None:
        self._change(kind, -1)

    def take(self, kind: int, most: int) -> bool:
        """Takes a slot, if fewer than `most` of its kind are taken in all processes."""
        with self._alone():
            free = self.count(kind) < most
            if free:
                self._cells[self._own + kind] += 1
        return free

    def give_back(self, kind: int) -> None:
        self._cells[self._own + kind] -= 1

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process takes a slot meanwhile. The kernel's lock ends with its process."""
        if self._lock < 0:
            yield
            return
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _change(self, kind: int, by: int) -> None:
        self._cells[self._own] += by
        if kind:
            self._cells[self._own + kind] += by
