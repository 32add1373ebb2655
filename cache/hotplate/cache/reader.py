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
from collections.abc import Iterable
from typing import Any

_MAP_NORESERVE = 0x4000
"""A private map of a model larger than free memory must not be refused (mmap(2))."""


_CHUNKS_PER_LINE = 4096
"""How many chunks one line asks for: the agent refuses lines over 64 KiB."""


class RemoteFile:
    """A file that the node's agent lends.

    `view` holds its bytes, copy-on-write: a page written here is this process's own. Only
    ranges that `wait` has returned for are sure to be verified. The view stays valid as long as
    anything refers to it, after `close` and after the agent's death too. Thread-safe.
    """

    def __init__(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """`request` is the opening line, by `open` or `open_url`.

        Raises OSError with the agent's sentence.
        """
        self.path = str(request.get("open", request.get("open_url")))
        self._socket = connection
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._error = ""
        self._linked = False
        self._has_path = "open" in request
        _send(connection, request)
        opening, self.fd = self._receive_opening()
        try:
            self.size_bytes = int(opening["size"])
            self.chunk_bytes = int(opening["chunk"])
            self.view = _map(self.fd, self.size_bytes)
        except BaseException:  # also when interrupted: cleaned up, and raised again
            os.close(self.fd)
            raise
        self._missing = set(range(-(-self.size_bytes // self.chunk_bytes)))
        self._missing.difference_update(opening["done"])
        self._complete = not self._missing
        self._asked: set[int] = set()
        threading.Thread(target=self._listen, name="hotplate-file", daemon=True).start()

    @property
    def complete(self) -> bool:
        """Whether every byte is verified."""
        return self._complete

    def want(self, spans: Iterable[tuple[int, int]]) -> None:
        """Asks for these byte ranges, in this order, before all else; does not wait."""
        chunks = dict.fromkeys(one for start, stop in spans for one in self._chunks(start, stop))
        with self._changed:
            asked = [one for one in chunks if one in self._missing and one not in self._asked]
            self._asked.update(asked)
        for at in range(0, len(asked), _CHUNKS_PER_LINE):
            with self._sending, contextlib.suppress(OSError):  # `_listen` reports the error
                _send(self._socket, {"want": asked[at : at + _CHUNKS_PER_LINE]})

    def arrived(self, start: int, stop: int) -> bool:
        """Whether the bytes from `start` up to `stop` are verified; does not wait."""
        return self._complete or self._missing.isdisjoint(self._chunks(start, stop))

    def wait(self, start: int, stop: int) -> None:
        """Blocks until the bytes from `start` up to `stop` are verified; they come first.

        Raises OSError with the agent's sentence, or when the agent went away before that.
        """
        if self._complete or stop <= start:
            return
        self.want([(start, stop)])
        needed = self._chunks(start, stop)
        with self._changed:
            while not self._missing.isdisjoint(needed):
                self._wait_for_change()

    def _chunks(self, start: int, stop: int) -> range:
        return range(start // self.chunk_bytes, -(-stop // self.chunk_bytes))

    def wait_all(self) -> None:
        """Blocks until every byte is verified. Raises OSError."""
        self.want([(0, self.size_bytes)])
        with self._changed:
            while not self._complete:
                self._wait_for_change()

    def wait_linked(self) -> None:
        """Blocks until the path itself is the complete file. Raises OSError."""
        with self._changed:
            while not self._linked:
                self._wait_for_change()

    def close(self) -> None:
        """Ends the lease; the agent may then take the memory back for other files."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_change(self) -> None:
        if self._error:
            raise OSError(self._error)
        self._changed.wait()

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
        if opening is None:
            raise OSError(f"{self.path}: the node's agent went away")
        missing = opening["error"]["code"] == "unknown_url"
        kind = FileNotFoundError if missing else OSError
        raise kind(f"{self.path}: {opening['error']['message']}")

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
        while not (self._complete and (self._linked or not self._has_path)):
            message = self._next_line()
            with self._changed:
                if message is None:
                    self._error = f"{self.path}: the node's agent went away"
                elif "error" in message:
                    self._error = f"{self.path}: {message['error']['message']}"
                else:
                    self._missing.difference_update(message.get("done", ()))
                    self._complete = not self._missing
                    self._linked = self._linked or message.get("linked", False)
                self._changed.notify_all()
                if self._error:
                    return


def open_file(socket_path: str, path: str) -> RemoteFile:
    """Opens a file of a tree of the node whose agent listens at `socket_path`.

    Raises OSError when there is no agent, or it has no such file.
    """
    folder, name = os.path.split(path)  # the file itself may be a link while it arrives
    return _open(socket_path, {"open": os.path.join(os.path.realpath(folder), name)})


def open_url(socket_path: str, url: str, token: str = "", only_wanted: bool = False) -> RemoteFile:
    """Opens the file at an fsspec URL, which the agent brings here if it is not there yet.

    `token` is the agent's. With `only_wanted` the agent brings only what somebody asks for.
    Raises OSError as above.
    """
    return _open(socket_path, {"open_url": url, "token": token, "only_wanted": only_wanted})


def _open(socket_path: str, request: dict[str, Any]) -> RemoteFile:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        # The folder's descriptor makes a name short enough for an address (108 bytes).
        folder = os.open(os.path.dirname(socket_path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(socket_path)}")
        finally:
            os.close(folder)
        file = RemoteFile(connection, request)
        undo.pop_all()
        return file


def _map(fd: int, size_bytes: int) -> memoryview:
    if size_bytes == 0:
        return memoryview(bytearray())
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    return memoryview(mmap.mmap(fd, size_bytes, mmap.MAP_PRIVATE | _MAP_NORESERVE, protection))


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")
