"""Blobs that come from no origin: a build on this node has made them.

Each is written to the disk tier once and is known by its digest only then. So their bytes are the
node's own before anybody names them, and peers and pods have them from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hotplate.cache.copies.landing import check
from hotplate.cache.manifest import Blob, chunk_digest
from hotplate.cache.store.packing import Pieces
from hotplate.cache.tiers.disk import DiskTier, Reservation, disk_error

_PURPOSE = "taken"


class TakenBlobs:
    """Keeps blobs in the space that is reserved for them. Not thread-safe."""

    def __init__(self, disk: DiskTier, space: Reservation, held: set[str]) -> None:
        """`held` is told every digest, so that the blob stays."""
        self._disk = disk
        self._space = space
        self._held = held
        self.blobs: dict[str, Blob] = {}
        """Those that are kept, by digest."""

    def keep(self, size_bytes: int, pieces: Pieces) -> Blob:
        """Raises NoSpace, CacheError, and what the pieces raise."""
        try:
            fd, partial = self._disk.folder.create(_PURPOSE, size_bytes)
            try:
                blob = Blob(size_bytes, tuple(_written(fd, pieces)))
                self._held.add(blob.digest)
                if self._disk.has(blob.digest, size_bytes):
                    self._mend(blob, fd)
                else:
                    room = self._space.part(size_bytes)
                    try:
                        self._disk.keep(partial, blob.digest, room)
                    finally:
                        room.release()
            finally:
                os.close(fd)
                self._disk.folder.remove(partial)
        except OSError as exc:
            raise disk_error(self._disk.root, size_bytes, exc) from exc
        self.blobs[blob.digest] = blob
        return blob

    def _mend(self, blob: Blob, source_fd: int) -> None:
        """The node has it already; what is wrong there is written over."""
        landing = check(self._disk, blob.digest, blob)
        assert landing.local is not None  # it is whole
        for index in range(len(blob.chunks)):
            landing.local.take(index, landing)
        if landing.local.wrong:
            landing.local.mend(source_fd)


def _written(fd: int, pieces: Pieces) -> Iterator[str]:
    """Writes them; the digest of each."""
    offset = 0
    for piece in pieces():
        os.pwrite(fd, piece, offset)
        offset += len(piece)
        yield chunk_digest(piece)
