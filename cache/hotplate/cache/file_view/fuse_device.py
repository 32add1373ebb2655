"""The kernel's side of the file view: requests are read from it, answers written to it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from hotplate.cache.file_view import fuse as wire
from hotplate.cache.file_view.fuse import FuseRequest
from hotplate.cache.file_view.mounting import DEVICE

_BACKING = struct.Struct("<iIQ")
_REQUEST_BYTES = 64 << 10
"""Names are the longest part of a request."""


class FuseDevice:
    """An open /dev/fuse. Thread-safe."""

    def __init__(self) -> None:
        """Raises OSError where there is no FUSE."""
        self.fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        self.passthrough = False

    def buffer(self) -> memoryview:
        """A buffer to read requests into; each thread has its own."""
        return memoryview(bytearray(_REQUEST_BYTES))

    def read(self, buffer: memoryview) -> FuseRequest | None:
        """The next request; None when the mount has gone."""
        while True:
            try:
                return wire.request(buffer[: os.readv(self.fd, [buffer])])
            except OSError as exc:
                if exc.errno == errno.ENODEV:
                    return None
                if exc.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    raise  # for the others, the kernel has withdrawn a request

    def reply(self, unique: int, *parts: bytes | memoryview) -> None:
        try:
            self._write([wire.answer(unique, sum(map(len, parts))), *parts])
        except OSError as exc:
            if exc.errno != errno.EFAULT:  # the file was truncated meanwhile
                raise
            self.refuse(unique, errno.EIO)

    def refuse(self, unique: int, error: int) -> None:
        self._write([wire.answer(unique, 0, error)])

    def back(self, fd: int) -> int:
        if not self.passthrough:
            return 0
        try:
            return int(fcntl.ioctl(self.fd, wire.BACKING_OPEN, bytearray(_BACKING.pack(fd, 0, 0))))
        except OSError:  # its file system cannot be passed through
            return 0

    def unback(self, backing: int) -> None:
        fcntl.ioctl(self.fd, wire.BACKING_CLOSE, struct.pack("<I", backing))

    def _write(self, parts: list[bytes | memoryview]) -> None:
        try:
            os.writev(self.fd, parts)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENODEV):  # the request is no longer waiting
                raise
