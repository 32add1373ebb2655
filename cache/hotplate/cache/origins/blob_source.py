"""The origin: where blobs come from when no copy is on the node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import fsspec
from blake3 import blake3

from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    OriginUnavailable,
    UnknownBlob,
    UnknownManifest,
)
from hotplate.cache.manifest import Blob, Manifest, ManifestEntry, count_chunks
from hotplate.cache.origins.request_size import RequestSize, report

OnProgress = Callable[[int], None]
"""Called while bytes are read, with how many have come so far."""


def ignore(came_bytes: int) -> None:
    """The callback of a reader that needs none."""


class ByteSource(Protocol):
    """The source of one file's bytes; synchronous and thread-safe."""

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        """Fills `view` with the file's bytes from `offset`.

        The bytes are not verified here. A source that can tell calls `on_progress` a few times a
        second while some come. Raises UnknownBlob, ChunkCorrupt (the file is too short),
        OriginUnavailable.
        """


class Origin(Protocol):
    """Where manifests and the blobs that they name come from; synchronous and thread-safe."""

    def manifest(self, digest: str) -> Manifest:
        """Raises UnknownManifest, ChunkCorrupt, OriginUnavailable."""

    def source(self, blob: Blob) -> ByteSource:
        """The source of that blob, whether or not it exists."""


class NoOrigin:
    """The origin of an agent without a platform's blob store, which brings URLs only."""

    def manifest(self, digest: str) -> Manifest:
        raise UnknownManifest(f"this agent has no blob store to find {digest} in; give --origin")

    def source(self, blob: Blob) -> ByteSource:
        raise UnknownBlob(f"this agent has no blob store to find {blob.digest} in; give --origin")


class FsspecOrigin:
    """A blob store at an fsspec URL: `blobs/<digest[:2]>/<digest>`, `manifests/<digest>.json`."""

    def __init__(self, url: str, pace: RequestSize | None = None) -> None:
        """`pace` is for reading blobs; to read manifests alone, or a folder of this machine, none
        is needed."""
        self.url = url
        self._fs, self._root = fsspec.url_to_fs(url.rstrip("/"))
        protocol = self._fs.protocol
        self._local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)
        self._pace = pace

    def manifest(self, digest: str) -> Manifest:
        with self._asked_for(f"manifest {digest}", UnknownManifest):
            data = self._fs.cat_file(f"{self._root}/manifests/{digest}.json")
        return checked_manifest(digest, data)

    def source(self, blob: Blob) -> ByteSource:
        return BlobSource(self, blob.digest)

    def read_into(
        self,
        blob_digest: str,
        offset: int,
        view: memoryview,
        on_progress: OnProgress = ignore,
    ) -> None:
        """As `ByteSource.read_into`, for that blob."""
        report(self._read(blob_digest, offset, view), on_progress)

    def _read(self, blob_digest: str, offset: int, view: memoryview) -> Iterator[int]:
        assert self._local or self._pace is not None, self.url
        path = f"{self._root}/blobs/{blob_digest[:2]}/{blob_digest}"
        got = 0
        with self._asked_for(f"blob {blob_digest}", UnknownBlob):
            if self._pace is None or self._local:
                got = self._read_file(path, offset, view)
            else:
                for got in self._pace.pieces(self._fs, path, offset, view):
                    yield got
        if got != len(view):
            raise ChunkCorrupt(
                f"blob {blob_digest} at {self.url}: {got} of {len(view)} bytes at offset {offset}"
            )

    def _read_file(self, path: str, offset: int, view: memoryview) -> int:
        """Reads straight into `view`, so that no bytes object is made; returns how many bytes."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_at(fd, offset, view)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _asked_for(self, what: str, unknown: type[CacheError]) -> Iterator[None]:
        """Turns what fsspec raises into `unknown` or OriginUnavailable."""
        try:
            yield
        except FileNotFoundError as exc:
            raise unknown(
                f"origin {self.url} has no {what}; push the bento or model again"
            ) from exc
        except Exception as exc:  # each kind of storage has errors of its own
            raise OriginUnavailable(
                f"origin {self.url} did not give {what} ({exc or type(exc).__name__}); "
                "check its URL and credentials"
            ) from exc


@dataclass(frozen=True)
class BlobSource:
    """One blob of a blob store."""

    origin: FsspecOrigin
    digest: str

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        self.origin.read_into(self.digest, offset, view, on_progress)


def read_at(fd: int, offset: int, view: memoryview) -> int:
    """Fills `view` from the file's `offset` on; returns how many bytes there were."""
    got = 0
    while got < len(view):
        count = os.preadv(fd, [view[got:]], offset + got)
        if count == 0:
            break
        got += count
    return got


def checked_manifest(digest: str, data: bytes) -> Manifest:
    """The manifest in `data`, which must have that digest and safe paths.

    Raises ChunkCorrupt for other bytes, UnknownManifest for a path that leaves the tree.
    """
    if blake3(data).hexdigest() != digest:
        raise ChunkCorrupt(f"manifest {digest}: the bytes have another digest")
    try:
        manifest = Manifest.from_bytes(data)
    except (KeyError, TypeError, ValueError) as exc:
        raise ChunkCorrupt(f"manifest {digest}: not a manifest ({exc!r})") from exc
    seen: set[str] = set()
    leaves = {one.path for one in manifest.entries if not one.is_folder}
    folders = {one.path.rpartition("/")[0] for one in manifest.entries}
    wrong = {folder for folder in folders if not leaves.isdisjoint(_and_above(folder))}
    for entry in manifest.entries:
        why = _refusal(entry)
        if not why and entry.path.rpartition("/")[0] in wrong:
            why = "lies below what is no folder"
        if why or entry.path in seen:
            raise UnknownManifest(
                f"manifest {digest}: {entry.path!r} {why or 'stands there twice'}; "
                "push the bento or model again"
            )
        seen.add(entry.path)
    return manifest


def _and_above(path: str) -> Iterator[str]:
    """A path and all paths above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _refusal(entry: ManifestEntry) -> str:
    """Why a manifest with this entry is refused; "" if it is not."""
    if not {"", ".", ".."}.isdisjoint(entry.path.split("/")) or "\0" in entry.path:
        return "leaves the tree"
    if entry.link is not None and (not entry.link or "\0" in entry.link or entry.blob is not None):
        return "is no link that can be made"
    if entry.blob is not None and not _whole(entry.blob):
        return f"has {len(entry.blob.chunks)} chunks for {entry.blob.size_bytes} bytes"
    offset, length = entry.span
    beyond = entry.blob is None or offset + length > entry.blob.size_bytes
    if entry.part is not None and (offset < 0 or length < 0 or beyond):
        return f"is {length} bytes at {offset} of a blob that has not so many"
    return ""


def _whole(blob: Blob) -> bool:
    return len(blob.chunks) == count_chunks(blob.size_bytes)
