"""A table of blobs over a blob store of two, whose origin obeys the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.manifest import CHUNK_BYTES, Blob
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.tiers.arena import Arena
from hotplate.cache.tiers.disk import DiskTier
from tests.support.cache.fakes import PacedOrigin, blob_of, publish, random_bytes

CONTENT = random_bytes(2 * CHUNK_BYTES + 100, 3)
OTHER = random_bytes(CHUNK_BYTES + 100, 4)
BLOB, SECOND = blob_of(CONTENT), blob_of(OTHER)


@dataclass
class BlobBench:
    """Tables of blobs over a folder of two blobs."""

    origin: PacedOrigin
    metrics: Metrics
    root: Path
    make: Callable[..., BlobTable]
    blob_table: BlobTable

    def bring(self, blob: Blob = BLOB, streamed: bool = True) -> CachedBlob:
        return self.start(self.blob_table, blob, "model.safetensors", streamed)

    def start(
        self, blob_table: BlobTable, blob: Blob, name: str, streamed: bool = True
    ) -> CachedBlob:
        origin = self.origin.source(blob)
        return blob_table.bring(OriginFile(blob, origin, blob.digest, name), streamed)


@contextlib.asynccontextmanager
async def blob_bench(root: Path) -> AsyncIterator[BlobBench]:
    publish(root / "store", {"a": CONTENT, "b": OTHER})
    origin = PacedOrigin(FsspecOrigin(f"file://{root}/store"))
    metrics = Metrics()
    made: list[BlobTable] = []

    def make(
        arena_bytes: int = 1 << 30,
        stall_s: float = 30.0,
        threads: int = 2,
        arena: Arena | None = None,
        disk: Path = root / "disk",
        disk_bytes: int = 0,
        wanted: Callable[[], Set[str]] = frozenset,
    ) -> BlobTable:
        clock = asyncio.get_running_loop().time
        contents = Contents(threads, clock)
        Fetcher(threads, contents, clock, metrics)
        arena = arena or Arena(arena_bytes)
        tier = DiskTier(disk, limit_bytes=disk_bytes)
        made.append(BlobTable(arena, tier, contents, stall_s, wanted))
        return made[-1]

    yield BlobBench(origin, metrics, root, make, make())
    origin.release()
    for blob_table in made:
        await blob_table.close(5)
        assert all(cached.leases == 0 for cached in blob_table)


async def lent_bytes(blob_table: BlobTable, cached: CachedBlob) -> bytes:
    async with blob_table.lend(cached) as fd:
        return os.pread(fd, cached.content.size_bytes, 0)
