"""Manifests: trees of files as lists of chunks, each with its digest.

A *blob* is one file's content, cut in chunks of `CHUNK_BYTES` (the last one shorter). Its digest
is the BLAKE3 of its length and its chunks' digests, so a list of chunks can be checked against
the blob's name before a byte is fetched. A *manifest* names the files of one tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Protocol

from blake3 import blake3

CHUNK_BYTES = 8 << 20
"""Flat between 1 and 32 MiB in throughput; 8 MiB keeps fan-out close to one transfer."""


def chunk_digest(data: bytes | bytearray | memoryview) -> str:
    """The BLAKE3 of a chunk, in hex."""
    return blake3(data).hexdigest()


class Content(Protocol):
    """One file's content, cut in chunks."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def chunks(self) -> Sequence[str]:
        """Digest of each chunk; "" for one whose digest is not known yet."""

    def span(self, index: int) -> tuple[int, int]:
        """Where chunk `index` lies: (offset, length) in bytes."""


def for_all(mode: int) -> int:
    """The mode of a file or folder: every replica that can see it may read it, and none may write.

    Replicas are users of their own; a file is kept from them by not being visible to them.
    """
    return 0o555 if mode & 0o111 else 0o444


@dataclass(frozen=True)
class Blob:
    """One file's content."""

    size_bytes: int
    chunks: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        return blake3(f"{self.size_bytes}:{','.join(self.chunks)}".encode()).hexdigest()

    def span(self, index: int) -> tuple[int, int]:
        return _span(self.size_bytes, index)


class Draft:
    """One file's content before its digests are known: the first complete fetch sets them."""

    def __init__(self, size_bytes: int, known: Mapping[int, str] | None = None) -> None:
        """`known` are the digests that an earlier fetch has found, by chunk."""
        self.size_bytes = size_bytes
        known = known or {}
        self.chunks = [known.get(index, "") for index in range(count_chunks(size_bytes))]

    def span(self, index: int) -> tuple[int, int]:
        return _span(self.size_bytes, index)

    def forget(self) -> None:
        """Forgets all digests."""
        self.chunks = [""] * len(self.chunks)

    def blob(self) -> Blob:
        """The content, now that every chunk is here. Raises ValueError before that."""
        if "" in self.chunks:
            raise ValueError(f"chunk {self.chunks.index('')} of the draft has no digest yet")
        return Blob(self.size_bytes, tuple(self.chunks))


def count_chunks(size_bytes: int) -> int:
    return -(-size_bytes // CHUNK_BYTES)


def _span(size_bytes: int, index: int) -> tuple[int, int]:
    offset = index * CHUNK_BYTES
    return offset, min(CHUNK_BYTES, size_bytes - offset)


@dataclass(frozen=True)
class ManifestEntry:
    """One file, folder or symbolic link of a tree."""

    path: str
    """Relative, with `/`, without `.` or `..`."""
    mode: int = 0o644
    mtime: float = 0.0
    blob: Blob | None = None
    """None for a folder and for a link."""
    link: str | None = None
    """The target of a symbolic link, as it is written."""
    part: tuple[int, int] | None = None
    """(offset, length) of a small file that shares its blob with others; None: all of the blob."""

    @property
    def is_folder(self) -> bool:
        return self.blob is None and self.link is None

    @property
    def span(self) -> tuple[int, int]:
        """The (offset, length) of the file in its blob, in bytes."""
        if self.part is not None:
            return self.part
        return 0, self.blob.size_bytes if self.blob is not None else 0

    @property
    def size_bytes(self) -> int:
        return self.span[1]

    @property
    def streamed(self) -> bool:
        """Whether replicas may use the file before all of it has arrived."""
        return self.blob is not None and PurePosixPath(self.path).suffix == ".safetensors"


@dataclass(frozen=True)
class Manifest:
    """A tree of files."""

    entries: tuple[ManifestEntry, ...]

    @property
    def digest(self) -> str:
        return blake3(self.to_bytes()).hexdigest()

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of its blobs, each counted once."""
        return sum(blob.size_bytes for blob in set(self.blobs()))

    def blobs(self) -> Iterator[Blob]:
        return (entry.blob for entry in self.entries if entry.blob is not None)

    def get(self, path: str) -> ManifestEntry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def to_bytes(self) -> bytes:
        """Canonical JSON: the bytes that the digest is computed from."""
        return json.dumps([_entry_json(entry) for entry in self.entries], sort_keys=True).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Raises ValueError or KeyError for anything but `to_bytes`'s output."""
        blobs: dict[Blob, Blob] = {}
        return Manifest(tuple(_entry(item, blobs) for item in json.loads(data)))


def _entry_json(entry: ManifestEntry) -> dict[str, Any]:
    data: dict[str, Any] = {"path": entry.path, "mode": entry.mode, "mtime": entry.mtime}
    if entry.blob is not None:
        data |= {"size": entry.blob.size_bytes, "chunks": entry.blob.chunks}
    if entry.link is not None:
        data["link"] = entry.link
    if entry.part is not None:
        data["part"] = entry.part
    return data


def _entry(data: Mapping[str, Any], blobs: dict[Blob, Blob]) -> ManifestEntry:
    """`blobs` are those met so far: thousands of small files may share one, and its digest."""
    blob = Blob(data["size"], tuple(data["chunks"])) if "size" in data else None
    if blob is not None:
        blob = blobs.setdefault(blob, blob)
    part = (int(data["part"][0]), int(data["part"][1])) if "part" in data else None
    return ManifestEntry(data["path"], data["mode"], data["mtime"], blob, data.get("link"), part)
