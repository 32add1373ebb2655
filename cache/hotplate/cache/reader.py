"""Files of the node's cache, inside a replica: readable while their bytes still arrive.

Runs in a bento's own environment: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import threading
from typing import Any

_MAP_NORESERVE = 0x4000
"""A private map of a model larger than free memory must not be refused (mmap(2))."""


class RemoteFile:
    """A file that the node's agent lends.

    `view` holds its bytes, copy-on-write: a page written here is this process's own. Only
    ranges that `wait` has returned for are sure to be verified. The view stays valid as long as
    anything refers to it, after `close` and after the agent's death too. Thread-safe.
    """

    def __init__(self, connection: socket.socket, path: str) -> None:
        """Raises OSError with the agent's sentence."""
        self.path = path
        self._socket = connection
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._news = threading.Condition()
        self._error = ""
        self._linked = False
        _send(connection, {"open": path})
        opening, fd = self._receive_opening()
        try:
            self.size_bytes = int(opening["size"])
            self.view = _map(fd, self.size_bytes)
        finally:
            os.close(fd)
        self._chunk_bytes = int(opening["chunk"])
        self._missing = set(range(-(-self.size_bytes // self._chunk_bytes)))
        self._missing.difference_update(opening["done"])
        self._complete = not self._missing
        self._asked: set[int] = set()
        threading.Thread(target=self._listen, name="hotplate-file", daemon=True).start()

    @property
    def complete(self) -> bool:
        """Whether every byte is verified."""
        return self._complete

    def wait(self, start: int, stop: int) -> None:
        """Blocks until the bytes from `start` up to `stop` are verified; they come first.

        Raises OSError with the agent's sentence, or when the agent went away before that.
        """
        if self._complete or stop <= start:
            return
        first, last = start // self._chunk_bytes, (stop - 1) // self._chunk_bytes
        with self._news:
            missing = self._missing.intersection(range(first, last + 1))
            asked = sorted(missing - self._asked)
            self._asked.update(asked)
        if asked:
            with self._sending, contextlib.suppress(OSError):  # the listener tells why
                _send(self._socket, {"want": asked})
        with self._news:
            while not self._missing.isdisjoint(missing):
                self._wait_for_news()

    def wait_all(self) -> None:
        """Blocks until every byte is verified. Raises OSError."""
        with self._news:
            while not self._complete:
                self._wait_for_news()

    def wait_linked(self) -> None:
        """Blocks until the path itself is the complete file. Raises OSError."""
        with self._news:
            while not self._linked:
                self._wait_for_news()

    def close(self) -> None:
        """Ends the lease; the agent may then take the memory back for other files."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_news(self) -> None:
        if self._error:
            raise OSError(self._error)
        self._news.wait()

    def _receive_opening(self) -> tuple[dict[str, Any], int]:
        fds: list[int] = []
        while b"\n" not in self._buffer:
            data, got, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
            fds += got
            if not data:
                break
            self._buffer += data
        opening = self._next_line() if b"\n" in self._buffer else None
        if opening is not None and "error" not in opening and fds:
            return opening, fds[0]
        for fd in fds:
            os.close(fd)
        sentence = opening["error"]["message"] if opening else "the node's agent went away"
        raise OSError(f"{self.path}: {sentence}")

    def _next_line(self) -> dict[str, Any] | None:
        """The next line; None when the agent has gone, or `close` was called."""
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        message: dict[str, Any] = json.loads(line)
        return message

    def _listen(self) -> None:
        while not (self._complete and self._linked):
            message = self._next_line()
            with self._news:
                if message is None:
                    self._error = f"{self.path}: the node's agent went away"
                elif "error" in message:
                    self._error = f"{self.path}: {message['error']['message']}"
                else:
                    self._missing.difference_update(message.get("done", ()))
                    self._complete = not self._missing
                    self._linked = self._linked or message.get("linked", False)
                self._news.notify_all()
                if self._error:
                    return


def open_file(socket_path: str, path: str) -> RemoteFile:
    """Opens a file of a tree of the node whose agent listens at `socket_path`.

    Raises OSError when there is no agent, or it has no such file.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        # The folder's descriptor makes a name short enough for an address (108 bytes).
        folder = os.open(os.path.dirname(socket_path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(socket_path)}")
        finally:
            os.close(folder)
        file = RemoteFile(connection, os.path.realpath(path))
        undo.pop_all()
        return file


def _map(fd: int, size_bytes: int) -> memoryview:
    if size_bytes == 0:
        return memoryview(bytearray())
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    return memoryview(mmap.mmap(fd, size_bytes, mmap.MAP_PRIVATE | _MAP_NORESERVE, protection))


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")
