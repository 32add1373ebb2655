"""Manifests: trees of files as lists of chunks, each with its digest.

A *blob* is one file's content, cut in chunks of `CHUNK_BYTES` (the last one shorter). Its digest
is the BLAKE3 of its length and its chunks' digests, so a list of chunks can be checked against
the blob's name before a byte is fetched. A *manifest* names the files of one tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from blake3 import blake3

CHUNK_BYTES = 8 << 20
"""Flat between 1 and 32 MiB in throughput; 8 MiB keeps fan-out close to one transfer."""


def chunk_digest(data: bytes | bytearray | memoryview) -> str:
    """The BLAKE3 of a chunk, in hex."""
    return blake3(data).hexdigest()


@dataclass(frozen=True)
class Blob:
    """One file's content."""

    size_bytes: int
    chunks: tuple[str, ...]

    @property
    def digest(self) -> str:
        return blake3(f"{self.size_bytes}:{','.join(self.chunks)}".encode()).hexdigest()

    def span(self, index: int) -> tuple[int, int]:
        """Where chunk `index` lies: (offset, length) in bytes."""
        offset = index * CHUNK_BYTES
        return offset, min(CHUNK_BYTES, self.size_bytes - offset)


@dataclass(frozen=True)
class Entry:
    """One file or folder of a tree."""

    path: str
    """Relative, with `/`, without `.` or `..`."""
    mode: int = 0o644
    mtime: float = 0.0
    blob: Blob | None = None
    """None for a folder."""

    @property
    def streamed(self) -> bool:
        """Whether replicas may use the file before all of it has arrived."""
        return self.blob is not None and PurePosixPath(self.path).suffix == ".safetensors"


@dataclass(frozen=True)
class Manifest:
    """A tree of files."""

    entries: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        return blake3(self.to_bytes()).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(blob.size_bytes for blob in self.blobs())

    def blobs(self) -> Iterator[Blob]:
        return (entry.blob for entry in self.entries if entry.blob is not None)

    def get(self, path: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.path == path), None)

    def to_bytes(self) -> bytes:
        """Canonical JSON: the bytes that the digest is taken of."""
        return json.dumps([_entry_json(entry) for entry in self.entries], sort_keys=True).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Raises ValueError or KeyError for anything but `to_bytes`'s output."""
        return Manifest(tuple(_entry(item) for item in json.loads(data)))


def _entry_json(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = {"path": entry.path, "mode": entry.mode, "mtime": entry.mtime}
    if entry.blob is not None:
        data |= {"size": entry.blob.size_bytes, "chunks": entry.blob.chunks}
    return data


def _entry(data: Mapping[str, Any]) -> Entry:
    blob = Blob(data["size"], tuple(data["chunks"])) if "size" in data else None
    return Entry(data["path"], data["mode"], data["mtime"], blob)
