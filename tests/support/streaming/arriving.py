"""A node agent in memory: files whose chunks arrive when the test says so."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.patience import PATIENCE_S

CHUNK_BYTES = mmap.PAGESIZE
"""Whole pages, as the real agent's chunks are: a private map copies page by page."""

"""Then a wait fails, so that a failing test ends."""


class ArrivingBlob:
    """One file's content in a memfd, of which some chunks are there."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.data = data
        self.descriptor = os.memfd_create("arriving")
        os.ftruncate(self.descriptor, len(data))
        self.arrived: set[int] = set()
        self.linked = False
        self.lost = False
        self.waiting: set[tuple[int, int]] = set()
        """Byte ranges that somebody is blocked on now."""
        self.changed = threading.Condition()

    @property
    def chunks(self) -> range:
        return range(-(-len(self.data) // CHUNK_BYTES))

    def release(self, *chunks: int) -> None:
        """Let these chunks arrive, or all of them."""
        with self.changed:
            for chunk in chunks or self.chunks:
                start = chunk * CHUNK_BYTES
                os.pwrite(self.descriptor, self.data[start : start + CHUNK_BYTES], start)
                self.arrived.add(chunk)
            self.changed.notify_all()

    def release_until(self, stop: int) -> None:
        """Let the chunks of the first `stop` bytes arrive."""
        self.release(*(chunk for chunk in self.chunks if chunk * CHUNK_BYTES < stop))

    def link(self) -> None:
        """Let all arrive, and put the complete file in the placeholder's place."""
        self.release()
        complete = self.path.with_name(f".{self.path.name}.complete")
        complete.write_bytes(self.data)
        complete.replace(self.path)
        with self.changed:
            self.linked = True
            self.changed.notify_all()

    def lose(self) -> None:
        """Let every wait fail."""
        with self.changed:
            self.lost = True
            self.changed.notify_all()

    def wait_until_blocked(self, timeout_s: float = PATIENCE_S) -> tuple[int, int]:
        """The byte range that somebody is blocked on; (0, 0) for the link."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting, timeout_s), "nobody waits"
            return next(iter(self.waiting))


class ArrivingFile:
    """What `open_file` gives: a private map and the waits."""

    def __init__(self, blob: ArrivingBlob) -> None:
        self._blob = blob
        self.size_bytes = len(blob.data)
        self.chunk_bytes = CHUNK_BYTES
        self.fd = os.dup(blob.descriptor)
        self.wanted: list[tuple[int, int]] = []
        self.closed = False
        self._map = mmap.mmap(
            blob.descriptor,
            self.size_bytes,
            flags=mmap.MAP_PRIVATE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        self.view = memoryview(self._map)

    def arrived(self, start: int, stop: int) -> bool:
        return set(range(start // CHUNK_BYTES, -(-stop // CHUNK_BYTES))) <= self._blob.arrived

    def wait(self, start: int, stop: int) -> None:
        self._block((start, stop), lambda: self.arrived(start, stop))

    def want(self, spans: Iterable[tuple[int, int]]) -> None:
        self.wanted += spans

    def wait_all(self) -> None:
        self.wait(0, self.size_bytes)

    def wait_linked(self) -> None:
        self._block((0, 0), lambda: self._blob.linked)

    def close(self) -> None:
        self.closed = True
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _block(self, span: tuple[int, int], done: Callable[[], bool]) -> None:
        blob = self._blob
        with blob.changed:
            if not done():
                blob.waiting.add(span)
                blob.changed.notify_all()
                blob.changed.wait_for(lambda: done() or blob.lost, PATIENCE_S)
                blob.waiting.discard(span)
        if not done():
            raise OSError(f"{blob.path}: the origin does not answer")


class ArrivingTree:
    """The agent's folder and its socket's other end, both in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.blobs: dict[str, ArrivingBlob] = {}
        self.opened: list[ArrivingFile] = []

    def add(self, name: str, data: bytes) -> ArrivingBlob:
        """An empty placeholder for a file of which nothing has arrived."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.blobs[os.path.realpath(path)] = blob = ArrivingBlob(path, data)
        return blob

    def open_file(self, socket_path: str, path: str) -> ArrivingFile:
        """Stands for `hotplate.cache.reader.open_file`."""
        if path not in self.blobs:
            raise FileNotFoundError(path)
        file = ArrivingFile(self.blobs[path])
        self.opened.append(file)
        return file
