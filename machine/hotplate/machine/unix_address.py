"""Addresses of this machine's programs: `host:port`, or `unix:` and the path of a Unix socket.

The path may be longer than a socket's address can be (107 bytes): it is reached through a
descriptor of its folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

PREFIX = "unix:"


def unix_path(address: str) -> Path | None:
    """The socket's path; None where the address is no socket's."""
    return Path(address[len(PREFIX) :]) if address.startswith(PREFIX) else None


def address_of(path: Path) -> str:
    return f"{PREFIX}{path}"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Another name of `path`, short enough for a socket's address. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, backlog: int) -> socket.socket:
    """A listening socket there, which nobody else's user can reach, in the place of whatever was
    there before. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with short_path(path) as name:
            listener.bind(name)
        path.chmod(0o600)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener
