"""A blob that the file view has on loan from the agent, and the requests that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotplate.cache.file_view.inodes import BlobContent, Inode
from hotplate.cache.manifest import CHUNK_BYTES


@dataclass
class Read:
    """A read that waits for its range of the blob."""

    start: int
    stop: int
    lacking: set[int]


@dataclass(eq=False)
class Lease:
    """A blob that is on loan, or was asked for."""

    number: int
    content: BlobContent
    fd: int = -1
    view: memoryview = field(default_factory=lambda: memoryview(b""))
    missing: set[int] = field(default_factory=set)
    """Chunks that are not verified yet."""
    asked: set[int] = field(default_factory=set)
    failed: bool = False
    handles: int = 0
    stays: bool = False
    """Whether it may outlast its readers: it keeps no memory that other blobs may need."""
    aged: bool = False
    """Whether it has had no reader for a while."""
    opening: dict[int, Inode] = field(default_factory=dict)
    """Opens that wait for the loan, by request."""
    reads: dict[int, Read] = field(default_factory=dict)
    """Reads that wait for bytes, by request."""

    def lacking(self, start: int, stop: int) -> set[int]:
        """Which chunks of that range are missing."""
        if not self.missing or stop <= start:
            return set()
        chunks = range(start // CHUNK_BYTES, (stop - 1) // CHUNK_BYTES + 1)
        return self.missing.intersection(chunks)
