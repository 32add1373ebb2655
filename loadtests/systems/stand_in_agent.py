"""Leases files in memory to readers as a node's agent does, where the agent's packages are missing.

The memory is the agent's (`cache.tiers.arena`), and so are the socket and its messages
(`cache.leases`), so that readers notice no difference. Nothing is fetched, verified or kept: the
bytes come from a file of this machine.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from hotplate.cache.tiers.arena import Region

CHUNK_BYTES = 8 << 20


class LoadingFile:
    """A file that is being read into memory, chunk by chunk."""

    def __init__(self, path: Path, pause_s: float) -> None:
        self._path, self._pause_s = path, pause_s
        self.region = Region(path.name, path.stat().st_size)
        self.done: list[int] = []
        self.changed = threading.Condition()
        threading.Thread(target=self._fill, daemon=True).start()

    @property
    def complete(self) -> bool:
        return len(self.done) == -(-self.region.size_bytes // CHUNK_BYTES)

    def _fill(self) -> None:
        with self._path.open("rb", buffering=0) as file:
            for start in range(0, self.region.size_bytes, CHUNK_BYTES):
                time.sleep(self._pause_s)  # as a slow origin would
                part = self.region.view[start : start + CHUNK_BYTES]
                self.region.reserve(start, len(part))
                while part:
                    part = part[file.readinto(part) or 0 :]
                with self.changed:
                    self.done.append(start // CHUNK_BYTES)
                    self.changed.notify_all()


class StandInAgent:
    """Serves `socket_path`. A file is loaded when it is opened first, and stays."""

    def __init__(self, socket_path: Path, pause_s: float = 0.0) -> None:
        """`pause_s` before each chunk of 8 MiB arrives."""
        self.opened: list[str] = []
        """The paths that were opened, in order."""
        self._pause_s = pause_s
        self._files: dict[str, LoadingFile] = {}
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(socket_path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def whole(self, path: Path) -> bool:
        """Whether all of a file that was opened is in memory."""
        return self._files[os.path.realpath(path)].complete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the reader has left
            path = json.loads(connection.recv(1 << 16))["open"]
            file = self._loading(path)
            sent = len(file.done)
            opening = {"size": file.region.size_bytes, "chunk": CHUNK_BYTES}
            fd = file.region.lend()
            try:
                _send(connection, opening | {"done": file.done[:sent]}, [fd])
            finally:
                os.close(fd)
            while not file.complete or sent < len(file.done):
                with file.changed:
                    file.changed.wait_for(lambda: len(file.done) > sent)  # noqa: B023
                    news, sent = file.done[sent:], len(file.done)
                _send(connection, {"done": news})
            _send(connection, {"complete": True})
            _send(connection, {"linked": True})
            while connection.recv(1 << 16):
                pass

    def _loading(self, path: str) -> LoadingFile:
        with self._lock:
            self.opened.append(path)
            if path not in self._files:
                self._files[path] = LoadingFile(Path(path), self._pause_s)
            return self._files[path]


def _send(connection: socket.socket, line: object, fds: list[int] | None = None) -> None:
    socket.send_fds(connection, [json.dumps(line).encode() + b"\n"], fds or [])
