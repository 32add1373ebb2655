"""Which slots a gateway's requests have taken, in a file that outlives it.

A new owner of the deployment reads there how many requests of the old one may still run. Writing
is two stores into mapped memory, once as a slot is taken and once as it comes back.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from hotplate.serving.gateway.queue.replica_slots import Replica

ROW = struct.Struct("<16sqd")
"""A replica (digest of its id), its slots taken, and when the last one was, in seconds of the
machine's monotonic clock. The last field of the first row is the slowest service time, seconds."""
ROWS = 127
DECAY = 0.999
"""The factor of the slowest service time after each request that took less."""


@dataclass(frozen=True)
class Taken:
    """The slots that a gateway had taken when its file was read."""

    slots: Mapping[bytes, tuple[int, float]]
    """By replica's key: how many, and when the last was taken."""
    slowest_s: float
    """How long a slot was taken at most, lately; 0 = none has come back yet."""


class TakenSlots:
    """The file of one deployment, locked (`flock`) by this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._size = 0
        self._slowest_s = 0.0
        self._grow(1 + ROWS)

    def take(self, replica: Replica, now: float) -> None:
        """A slot of the replica was taken."""
        row = self._rows.get(replica.id)
        if row is None:
            row = self._add(replica.id)
        self._times[row] = now
        self._counts[row - 1] = replica.taken

    def release(self, replica: Replica, service_s: float) -> None:
        """A slot of the replica came back after `service_s`."""
        self._counts[self._rows[replica.id] - 1] = replica.taken
        slowest_s = self._slowest_s * DECAY
        self._slowest_s = slowest_s if slowest_s > service_s else service_s
        self._times[3] = self._slowest_s

    def close(self, *, remove: bool) -> None:
        """`remove`: nothing runs any longer. Otherwise the file says what may still run."""
        if remove:
            self._path.unlink(missing_ok=True)
        self._unmap()
        os.close(self._descriptor)

    def _add(self, replica: str) -> int:
        if not self._free:
            self._reclaim()
        row = self._rows[replica] = self._free.pop()
        start = (row - 3) * 8
        self._map[start : start + 16] = key_of(replica)
        return row

    def _reclaim(self) -> None:
        """Frees the rows of replicas without slots taken; if there are none, the file grows."""
        for idle in [each for each, row in self._rows.items() if not self._counts[row - 1]]:
            self._free.append(self._rows.pop(idle))
        if not self._free:
            self._grow(self._size * 2)

    def _grow(self, rows: int) -> None:
        os.ftruncate(self._descriptor, rows * ROW.size)
        if self._size:
            self._unmap()
        self._map = mmap.mmap(self._descriptor, rows * ROW.size)
        with memoryview(self._map) as memory:
            self._counts, self._times = memory.cast("q"), memory.cast("d")
        # A row is known by the place of its time, in units of 8 bytes.
        self._free += range(rows * 4 - 1, max(1, self._size) * 4 - 1, -4)
        self._size = rows

    def _unmap(self) -> None:
        """A map has a descriptor of its own, and with it the lock."""
        self._counts.release()
        self._times.release()
        self._map.close()


def key_of(replica: str) -> bytes:
    return blake2b(replica.encode(), digest_size=16).digest()


def read_taken(path: Path) -> Taken:
    """Reads a gateway's file. Raises OSError."""
    data = path.read_bytes()
    data = data[: len(data) - len(data) % ROW.size]
    head, *rows = ROW.iter_unpack(data) if data else [(b"", 0, 0.0)]
    return Taken({key: (taken, at) for key, taken, at in rows if taken > 0}, head[2])
