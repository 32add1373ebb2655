"""Blobs of this node's disk on their way to the blob store."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from hotplate.cache.errors import ChunkCorrupt
from hotplate.cache.manifest import CHUNK_BYTES, Blob
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.tiers.disk import DiskTier
from hotplate.cache.volumes.taking.tasks import Beat

SMALL, LARGE = 6, 2
"""Uploads at a time, of blobs of one chunk and of others: the client of a bucket has up to three
parts of 64 MiB in memory for each of the latter, and an agent has 1 GiB for all that it does."""


class BlobUploads:
    """Those of one hold. Blocks; raises CacheError."""

    def __init__(self, store: BlobStore, disk: DiskTier, beat: Beat) -> None:
        self._store = store
        self._disk = disk
        self._beat = beat

    def send(self, blobs: Iterable[Blob]) -> None:
        """Returns when the store has them all; those that it has are not sent again."""
        with ThreadPoolExecutor(SMALL) as small, ThreadPoolExecutor(LARGE) as large:
            sent: list[Future[None]] = [
                (small if len(blob.chunks) <= 1 else large).submit(self._send, blob)
                for blob in blobs
            ]
            done, others = wait(sent, return_when=FIRST_EXCEPTION)
            for each in others:
                each.cancel()
            for each in done:
                each.result()

    def _send(self, blob: Blob) -> None:
        self._beat()
        if self._store.has(blob):
            return
        with open(self._disk.lend(blob.digest), "rb") as file, self._store.writer() as writer:
            while piece := file.read(CHUNK_BYTES):
                self._beat()
                writer.write(piece)
            if writer.seal() != blob:
                raise ChunkCorrupt(
                    f"disk tier: blob {blob.digest} was damaged while it was published; ask again"
                )
            writer.commit()
