"""What this node has of each blob. Runs on the event loop; threads report to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Set

from hotplate.cache.copies.arena_space import ArenaSpace
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.copies.disk_space import DiskSpace
from hotplate.cache.copies.intake import Intake
from hotplate.cache.copies.landing import DiskCopy
from hotplate.cache.errors import ChunkCorrupt, NoSpace
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.manifest import Blob
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.tiers.arena import Arena
from hotplate.cache.tiers.disk import DiskTier, Reservation


class BlobTable:
    """The blobs of this node by digest, and drafts by their keys until their digests are known."""

    def __init__(
        self,
        arena: Arena,
        disk: DiskTier,
        contents: Contents,
        stall_s: float,
        wanted: Callable[[], Set[str]] = frozenset,
    ) -> None:
        """`wanted` says which blobs never leave the disk to make room for others."""
        self.arena = arena
        self.disk = disk
        self._contents = contents
        self._cached: dict[str, CachedBlob] = {}
        self._uses = itertools.count(1)
        self.arena_space = ArenaSpace(arena, self)
        self._disk_space = DiskSpace(disk, self._cached, self.drop, wanted)
        self._intake = Intake(
            disk, self.arena_space, self._disk_space, contents, stall_s, self._settle
        )

    def __iter__(self) -> Iterator[CachedBlob]:
        return iter(list(dict.fromkeys(self._cached.values())))  # a settled draft has two keys

    def bring(self, file: OriginFile, streamed: bool, whole: bool = True) -> CachedBlob:
        """Starts to bring a file's content here, or joins a fetch that is under way.

        Of a file that is not to come `whole`, only the chunks come that its readers want, and it is
        forgotten with the last reader.
        """
        cached = self._cached.get(file.key)
        if cached is not None and not self._lost(cached):
            self._widen(cached, whole)
            return cached
        cached = self._cached[file.key] = CachedBlob(file)
        cached.whole = whole
        cached.used = next(self._uses)
        cached.task = asyncio.get_running_loop().create_task(self._intake.bring(cached, streamed))
        return cached

    def _widen(self, cached: CachedBlob, whole: bool) -> None:
        cached.whole = cached.whole or whole
        if whole and cached.fetch is not None:
            cached.fetch.take_whole()

    def get(self, key: str) -> CachedBlob | None:
        """What this node has of a blob or draft that was asked for. Thread-safe."""
        return self._cached.get(key)

    @property
    def disk_trouble(self) -> str:
        """Why files are in memory only; empty when none is."""
        return self._intake.disk_trouble

    @property
    def mended_chunks(self) -> int:
        """How many chunks were wrong on disk and have been written over."""
        return self._intake.mended_chunks

    def _lost(self, cached: CachedBlob) -> bool:
        """Whether it failed, or its file has vanished from the disk."""
        gone = cached.place is None and not self.disk.has(cached.key, cached.content.size_bytes)
        return cached.error is not None or (cached.on_disk and gone)

    def verified_bytes(self, keys: Iterable[str]) -> int:
        """How many bytes of these blobs are here."""
        return sum(held.verified_bytes for key in keys if (held := self._cached.get(key)))

    def want(self, cached: CachedBlob, indices: Iterable[int]) -> None:
        """A reader waits for these chunks."""
        if cached.fetch is not None:
            cached.fetch.want(indices)

    @contextlib.asynccontextmanager
    async def lend(self, cached: CachedBlob, disk_first: bool = False) -> AsyncIterator[int]:
        """A read-only descriptor of the blob's bytes, which is closed on exit.

        Until then its memory is not taken back. `disk_first` prefers the file on disk to the copy
        in memory, where the node has both. Raises the error that the blob failed with.
        """
        cached.leases += 1
        try:
            await cached.until(lambda: cached.place is not None or cached.on_disk)
            place = None if disk_first and cached.on_disk else cached.place
            fd = place.lend() if place is not None else self.disk.lend(cached.key)
            try:
                yield fd
            finally:
                os.close(fd)
        finally:
            cached.leases -= 1
            cached.used = next(self._uses)
            if not cached.leases and not cached.whole and not cached.complete:
                self._cached.pop(cached.key, None)
                await self._stop(cached)
            forgotten = self._cached.get(cached.key) is not cached
            if not cached.leases and (forgotten or cached.error is not None):
                await self.arena_space.free(cached)

    def may_give_up(self, give_up: Callable[[], Awaitable[bool]]) -> None:
        """From now on a full disk has this remove what is wanted least, as long as there is such;
        it says whether there was."""
        self._disk_space.give_up = give_up

    async def reserve(self, size_bytes: int) -> Reservation:
        """Space on disk for blobs that come from no origin. Raises NoSpace."""
        return await self._disk_space.reserve(size_bytes)

    async def drop(self, digest: str) -> None:
        """Forgets a blob and deletes its copies; open leases keep theirs."""
        cached = self._cached.pop(digest, None)
        if cached is not None:
            await self._stop(cached)
            await self.arena_space.free_unless_lent(cached)
        self.disk.discard(digest)

    async def mend(self, blob: Blob, origin: ByteSource, name: str) -> None:
        """Verifies a blob's file in place, and writes over the chunks that are wrong. Raises
        CacheError.

        All links to the file see the change; memory that is on loan does not.
        """
        old = self._cached.pop(blob.digest, None)
        if old is not None:
            await self._stop(old)
            await self.arena_space.free_unless_lent(old)
        cached = self.bring(OriginFile(blob, origin, blob.digest, name), streamed=False)
        await cached.until(lambda: cached.on_disk)

    async def warm(self, cached: CachedBlob) -> None:
        """Brings a blob of the disk tier to the arena too.

        Raises NoSpace when it does not fit, ChunkCorrupt when the file is damaged.
        """
        await cached.until(lambda: cached.on_disk or (cached.complete and cached.in_arena))
        content = cached.content
        if cached.in_arena or not isinstance(content, Blob) or not content.size_bytes:
            return
        region = await self.arena_space.allocate(cached)
        if region is None:
            raise NoSpace(
                f"{cached.name} of {content.size_bytes} bytes does not fit into the arena's "
                f"{self.arena.limit_bytes}; give the agent more --memory, or 'cache rm' something"
            )
        copy = DiskCopy(self.disk, cached.key, content)
        try:
            for index in range(len(content.chunks)):
                region.reserve(*content.span(index))
                if not await asyncio.to_thread(copy.take, index, region):
                    raise ChunkCorrupt(f"{cached.name} is damaged on disk; run 'cache verify'")
            if cached.place is None and self._cached.get(cached.key) is cached:
                cached.place, region = region, None
                cached.used = next(self._uses)
        finally:
            if region is not None:
                await asyncio.to_thread(self.arena.release, region)

    async def close(self, flush_s: float) -> None:
        """Stops fetching, waits until complete blobs are on disk, and gives the memory back.

        A file that was on its way to the disk tier stays there for the next run.
        """
        self._intake.stop()
        self._contents.close()
        for cached in self:
            if not cached.complete or cached.disk_error is not None:
                await self._stop(cached)
        writing = [one.task for one in self if one.task is not None and not one.task.done()]
        if writing:
            await asyncio.wait(writing, timeout=flush_s)
        self._intake.close()
        for cached in self:
            await self.arena_space.free(cached)

    async def _stop(self, cached: CachedBlob) -> None:
        if cached.task is not None and not cached.task.done():
            cached.task.cancel()
            await asyncio.wait({cached.task})

    def _settle(self, cached: CachedBlob) -> None:
        """The blob is complete: from now on it is known by its digest too."""
        self._cached.setdefault(cached.key, cached)
