"""A file of the node's agent, as this process sees it while it arrives."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from hotplate.serving.streaming.span import clock

TREES = "HOTPLATE_TREES"
"""Environment: the folder below which files are the agent's."""
AGENT_SOCKET = "HOTPLATE_AGENT_SOCKET"
"""Environment: the agent's Unix socket."""
SUFFIX = ".safetensors"
"""Only these files are streamed; all others are complete before a replica starts."""


class RemoteFile(Protocol):
    """What is needed of `hotplate.cache.reader.RemoteFile`."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def view(self) -> memoryview:
        """The whole file, mapped private and writable; bytes that have not arrived are zero."""

    def wait(self, start: int, stop: int) -> None:
        """Block until these bytes are verified. Raises OSError if they cannot be had."""

    def wait_linked(self) -> None:
        """Block until the path itself is the complete file. Raises OSError as above."""

    def close(self) -> None: ...


class Source:
    """One opened file. Each opening has a map of its own, so that what one user writes into its
    tensors no other sees, just as with the stock library."""

    def __init__(self, path: str, open_remote: Callable[[], RemoteFile]) -> None:
        """Raises OSError as `open_remote` does."""
        self.path = path
        self._open_remote = open_remote
        self._remote = self._connect()
        self._view = self._remote.view
        self.size_bytes = self._remote.size_bytes
        clock.opened(path, self.size_bytes)

    def wait(self, start: int, stop: int) -> None:
        """Block until bytes `start:stop` are there. Raises OSError if they cannot be had."""
        if start < stop:
            self._connected().wait(start, stop)
            clock.waited()

    def wait_linked(self) -> None:
        """Block until the path itself is the complete file. Raises OSError as `wait`."""
        self._connected().wait_linked()
        clock.waited()

    def lease(self) -> memoryview:
        """The whole file's bytes, writable. Whatever is made of them keeps the source open.

        Shape: (size_bytes,). Read only what `wait` has returned for.
        """
        # A buffer's consumers hold the object that exports it, and nothing else: so the
        # exporter is one that can carry a reference to this source.
        lease: Any = (ctypes.c_ubyte * self.size_bytes).from_buffer(self._view)
        lease.source = self
        return memoryview(lease).cast("B")

    def _connected(self) -> RemoteFile:
        if self._pid != os.getpid():  # forked: the map came along, the connection is the parent's
            self._remote = self._connect()
        return self._remote

    def _connect(self) -> RemoteFile:
        self._pid = os.getpid()
        remote = self._open_remote()
        weakref.finalize(self, _close, remote, self._pid).atexit = False
        return remote


def _close(remote: RemoteFile, pid: int) -> None:
    if pid == os.getpid():  # a forked child must not end its parent's lease
        remote.close()


def open_source(path: Any) -> Source | None:
    """The agent's file at `path`, or None where the path is not the agent's to stream.

    None also for a complete file while the agent does not answer: it can be read as it is.
    Raises OSError for one that is still arriving while the agent does not answer.
    """
    socket_path = os.environ.get(AGENT_SOCKET)
    real_path = streamed_path(path)
    if socket_path is None or real_path is None:
        return None
    from hotplate.cache.reader import open_file  # only a replica with an agent needs it

    try:
        return Source(real_path, lambda: open_file(socket_path, real_path))
    except OSError:
        if is_placeholder(real_path):
            raise
        return None


def streamed_path(path: Any) -> str | None:
    """`path` without links, if the agent streams that file into this process."""
    trees = os.environ.get(TREES)
    if trees is None or sys.byteorder != "little" or not isinstance(path, (str, os.PathLike)):
        return None
    real_path = os.path.realpath(os.fsdecode(path))
    below = real_path.startswith(os.path.join(os.path.realpath(trees), ""))
    streamed = below and real_path.endswith(SUFFIX) and os.path.isfile(real_path)
    return real_path if streamed else None


def is_placeholder(path: str) -> bool:
    """Whether the file is still the empty stand-in for one that arrives."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False
