"""The speed of connections, as the kernel keeps it (SO_MAX_PACING_RATE, socket(7))."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

_SO_MAX_PACING_RATE = 47
"""asm-generic/socket.h; Python has no name for it."""
_PIDFD_GETFD = 438
"""asm-generic/unistd.h: the same number on all architectures."""

_libc = ctypes.CDLL(None, use_errno=True)


def pace(listener: socket.socket, bytes_per_s: float) -> None:
    """Limits each connection that it accepts from now on: connections inherit the option."""
    rate = int(bytes_per_s).to_bytes(8, "little")
    listener.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)


def pace_process(pid: int, bytes_per_s: float) -> None:
    """The same for every TCP socket on which a process listens; it notices nothing.

    Raises OSError where we may not look into that process.
    """
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(entry).startswith("socket:"):
                with _taken(pidfd, int(entry.name)) as one:
                    if _is_tcp(one) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        pace(one, bytes_per_s)
    finally:
        os.close(pidfd)


def _taken(pidfd: int, fd: int) -> socket.socket:
    """The socket of another process itself, and not a copy (pidfd_getfd(2))."""
    ours = _libc.syscall(_PIDFD_GETFD, pidfd, fd, 0)
    if ours < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=ours)


def _is_tcp(one: socket.socket) -> bool:
    internet = one.family in (socket.AF_INET, socket.AF_INET6)
    return internet and one.type == socket.SOCK_STREAM
