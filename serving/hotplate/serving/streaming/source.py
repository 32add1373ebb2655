"""A file of the node's agent, as this process sees it while it arrives."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hotplate.serving.streaming.weights_clock import clock

TREES = "HOTPLATE_TREES"
"""Environment: the folder below which files are the agent's."""
AGENT_SOCKET = "HOTPLATE_AGENT_SOCKET"
"""Environment: the agent's Unix socket."""
SUFFIX = ".safetensors"
"""Only these files are streamed; all others are complete before a replica starts."""
_MOST_LINKS = 40
"""As many as the kernel follows."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")


class ArrivingFile(Protocol):
    """What is needed of `hotplate.cache.reader.RemoteFile`."""

    fd: int
    """Open for reading until `close`, and then -1."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def chunk_bytes(self) -> int:
        """The size of the chunks that the file comes in."""

    @property
    def view(self) -> memoryview:
        """The whole file, mapped private and writable; bytes that have not arrived are zero."""

    def want(self, spans: Iterable[tuple[int, int]]) -> None:
        """Ask for these bytes before all others, in this order; does not wait."""

    def arrived(self, start: int, stop: int) -> bool:
        """Whether these bytes are verified; does not wait."""

    def wait(self, start: int, stop: int) -> None:
        """Block until these bytes are verified. Raises OSError if they cannot be brought."""

    def wait_all(self) -> None:
        """Block until every byte is verified. Raises OSError as above."""

    def wait_linked(self) -> None:
        """Block until the path itself is the complete file. Raises OSError as above."""

    def close(self) -> None: ...


class StreamSource:
    """One opened file. Each opening has a map of its own, so that writes into its tensors are seen
    nowhere else, just as with the stock library."""

    def __init__(self, path: str, open_remote: Callable[[], ArrivingFile]) -> None:
        """Raises OSError as `open_remote` does."""
        self.path = path
        self._open_remote = open_remote
        self._remote = self._connect()
        self._view = self._remote.view
        self.size_bytes = self._remote.size_bytes
        self.chunk_bytes = self._remote.chunk_bytes
        clock.opened(path, self.size_bytes)

    def want(self, spans: Iterable[tuple[int, int]]) -> None:
        """Ask for these bytes before all others, in this order; does not wait."""
        self._connected().want(spans)

    def arrived(self, start: int, stop: int) -> bool:
        """Whether bytes `start:stop` are there; does not wait."""
        return self._connected().arrived(start, stop)

    def wait(self, start: int, stop: int) -> None:
        """Block until bytes `start:stop` are there. Raises OSError if they cannot be brought."""
        if start < stop:
            self._connected().wait(start, stop)
            clock.waited()

    def read_into(self, start: int, view: memoryview) -> None:
        """Fill `view` with the bytes from `start`, which `wait` has returned for.

        Faster than by way of the map, where they are read once. Raises OSError.
        """
        fd, read_bytes = self._connected().fd, 0
        while read_bytes < len(view):
            count = os.preadv(fd, [view[read_bytes:]], start + read_bytes)
            if not count:
                raise OSError(f"{self.path}: the file ends at byte {start + read_bytes}")
            read_bytes += count

    def memory(self, start: int, stop: int) -> memoryview:
        """These bytes where they are, which `wait` has returned for."""
        self._connected()
        return self._view[start:stop]

    def close(self) -> None:
        """End all waits, and the lease; bytes that are mapped stay."""
        _close(self._remote, self._pid)

    def whole(self) -> str:
        """Block until every byte is there, and give a path of the complete file.

        The path is good while this source is. Raises OSError as `wait`.
        """
        remote = self._connected()
        remote.wait_all()
        clock.waited()
        return f"/proc/self/fd/{remote.fd}"

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

    def _connected(self) -> ArrivingFile:
        if self._pid != os.getpid():  # forked: the map came along, the connection is the parent's
            self._remote = self._connect()
        return self._remote

    def _connect(self) -> ArrivingFile:
        self._pid = os.getpid()
        remote = self._open_remote()
        weakref.finalize(self, _close, remote, self._pid).atexit = False
        return remote


def _close(remote: ArrivingFile, pid: int) -> None:
    if pid == os.getpid():  # a forked child must not end its parent's lease
        remote.close()


def open_source(path: Any, only_wanted: bool = False) -> StreamSource | None:
    """The agent's file at `path`, or None where the path is not the agent's to stream.

    `path` may be a URL: then the agent is the one that `HOTPLATE_AGENT` names, and with
    `only_wanted` it brings only what is waited or asked for. None also for a complete file while
    the agent does not answer: it can be read as it is. Raises OSError for a URL, and for a file
    that is still arriving, while the agent does not answer.
    """
    if is_url(path):
        return _open_url(path, only_wanted)
    socket_path = os.environ.get(AGENT_SOCKET)
    real_path = streamed_path(path)
    if socket_path is None or real_path is None:
        return None
    from hotplate.cache.reader import open_file  # only a replica with an agent needs it

    try:
        return StreamSource(real_path, lambda: open_file(socket_path, real_path))
    except OSError:
        if is_placeholder(real_path):
            raise
        return None


def is_url(path: Any) -> bool:
    """Whether it is a URL as fsspec writes them, `zip::s3://…` too."""
    return isinstance(path, str) and _URL.match(path) is not None


def _open_url(url: str, only_wanted: bool) -> StreamSource:
    if sys.byteorder != "little":
        raise OSError(f"{url}: only machines with the file's byte order can stream it")
    from hotplate.cache.reader import open_url  # as above
    from hotplate.serving.streaming.agent_endpoint import find_endpoint

    endpoint = find_endpoint(url)
    return StreamSource(
        url, lambda: open_url(endpoint.socket_path, url, endpoint.token, only_wanted)
    )


def streamed_path(path: Any) -> str | None:
    """The name below the agent's folder that `path` leads to, if the agent streams such a file.

    While the file arrives, that name is a link into the file view, where reads wait.
    """
    trees = os.environ.get(TREES)
    if trees is None or sys.byteorder != "little" or not isinstance(path, (str, os.PathLike)):
        return None
    root = os.path.join(os.path.realpath(trees), "")
    below = [name for name in _names(os.fsdecode(path)) if name.startswith(root)]
    return below[-1] if below and below[-1].endswith(SUFFIX) else None


def _names(path: str) -> Iterator[str]:
    """All names of a file: its own, and one after each link; folders without links."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
        yield path
        if not os.path.islink(path):
            return
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def is_placeholder(path: str) -> bool:
    """Whether the file is still a stand-in for one that arrives, and cannot be read itself."""
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return os.path.islink(path)  # to a view that has ended with its agent
