"""Files in memory that only the agent can write to, although others have descriptors of them.

A read-only descriptor alone would protect nothing: `/proc/self/fd/N` can be opened again for
writing. So a memfd is sealed once the agent has mapped it, and a file of our own tmpfs is opened
for others through a read-only mount of it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from pathlib import Path
from typing import Protocol

from hotplate.cache.tiers import private_mounts as own_mounts

_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x01
_F_SEAL_SHRINK = 0x02
_F_SEAL_GROW = 0x04
_F_SEAL_FUTURE_WRITE = 0x10
"""From linux/fcntl.h; Python's fcntl lacks the last one before 3.13."""

READABLE = 0o444
"""Borrowers open a file again by its name in /proc, and may be other users."""


class ProtectedFile(Protocol):
    fd: int
    """The agent's own descriptor, to map and to allocate."""

    def protect(self) -> None:
        """To be called once the file is mapped, before any descriptor is lent."""

    def lend(self) -> int:
        """A new read-only descriptor; the caller closes it."""

    def close(self) -> None: ...


class SealedFile:
    """A memfd: the agent's own map, made before the seal, is the only one that writes."""

    def __init__(self, name: str, size_bytes: int) -> None:
        """Raises OSError."""
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _make_readable(self, size_bytes)

    def protect(self) -> None:
        seals = _F_SEAL_FUTURE_WRITE | _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL
        fcntl.fcntl(self.fd, _F_ADD_SEALS, seals)

    def lend(self) -> int:
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)


class HugeMount:
    """A tmpfs of huge pages that no path leads to; it ends with the agent, however that ends.

    The kernel gives and clears huge pages in a third of the time that small ones take, and most
    kernels give none to a memfd.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` may be any that exists; it stays as it is. Raises OSError where refused."""
        self._names = itertools.count()
        self._writable, self._readable = own_mounts.memory(folder)
        self._open = [self._writable, self._readable]

    def create(self, size_bytes: int) -> MountedFile:
        """Raises OSError."""
        return MountedFile(self._writable, self._readable, str(next(self._names)), size_bytes)

    def close(self) -> None:
        """Open files live on."""
        while self._open:
            os.close(self._open.pop())


class MountedFile:
    """A file of a `HugeMount`."""

    def __init__(self, writable: int, readable: int, name: str, size_bytes: int) -> None:
        """`writable` and `readable` are descriptors of the folder in its two mounts. Raises
        OSError."""
        self._writable, self._readable, self._name = writable, readable, name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.fd = os.open(name, flags, 0o600, dir_fd=writable)
        _make_readable(self, size_bytes)

    def protect(self) -> None:
        """Does nothing: the mount that others get the file through is read-only."""

    def lend(self) -> int:
        return os.open(self._name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._readable)

    def close(self) -> None:
        os.unlink(self._name, dir_fd=self._writable)
        os.close(self.fd)


def _make_readable(file: ProtectedFile, size_bytes: int) -> None:
    """Gives a new file its mode and size. Closes it and raises OSError where that fails."""
    try:
        os.fchmod(file.fd, READABLE)
        os.ftruncate(file.fd, size_bytes)
    except OSError:
        file.close()
        raise
