"""What this node has of each blob, and how a blob comes here.

A streamed blob goes to the arena, where replicas read it while it arrives, and is written to
disk behind. Any other blob, and a streamed one that the arena has no room for, goes straight to
a file of the disk tier. A copy already on disk is read and verified instead of the origin, chunk
by chunk, and mended where it is wrong.

Everything here runs on the event loop; threads report to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Set

from hotplate.cache.copies.arena_space import ArenaSpace
from hotplate.cache.copies.arrival import fetch_into
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.copies.disk_space import DiskSpace
from hotplate.cache.copies.landing import DiskCopy, DiskLanding, check, land
from hotplate.cache.copies.write_behind import WriteBehind
from hotplate.cache.errors import CacheError, ChunkCorrupt, Misled, NoSpace
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.manifest import Blob, Draft
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.tiers.arena import Arena, Region
from hotplate.cache.tiers.disk import DiskTier

log = logging.getLogger(__name__)

_LANDINGS = 64
"""Files on their way to disk at once: a tree of thousands would use up the descriptors."""


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
        self._stall_s = stall_s
        self._cached: dict[str, CachedBlob] = {}
        self._closing = False
        self._uses = itertools.count(1)
        self.arena_space = ArenaSpace(arena, self)
        self._landings = asyncio.Semaphore(_LANDINGS)
        self.disk_space = DiskSpace(disk, self._cached, self.drop, wanted)
        self._write_behind = WriteBehind(disk, self.disk_space.reserve)
        self.mended_chunks = 0
        """How many chunks were wrong on disk and have been written over."""

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
        cached.task = asyncio.get_running_loop().create_task(self._bring(cached, streamed))
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
        return self._write_behind.trouble

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
        self._closing = True
        self._contents.close()
        for cached in self:
            if not cached.complete or cached.disk_error is not None:
                await self._stop(cached)
        writing = [one.task for one in self if one.task is not None and not one.task.done()]
        if writing:
            await asyncio.wait(writing, timeout=flush_s)
        self._write_behind.close()
        for cached in self:
            await self.arena_space.free(cached)

    async def _stop(self, cached: CachedBlob) -> None:
        if cached.task is not None and not cached.task.done():
            cached.task.cancel()
            await asyncio.wait({cached.task})

    async def _bring(self, cached: CachedBlob, streamed: bool) -> None:
        try:
            if streamed:
                await self._place_and_fetch(cached, streamed)
            else:
                async with self._landings:
                    await self._place_and_fetch(cached, streamed)
        except CacheError as error:
            cached.error = error
        except Exception as error:  # a bug must not leave replicas hanging
            log.exception("blob %s (%s)", cached.key, cached.name)
            cached.error = CacheError(f"{cached.name}: {error!r}")
        except asyncio.CancelledError:
            cached.error = CacheError(f"{cached.name}: no longer wanted on this node")
            raise
        finally:
            cached.notify()

    async def _place_and_fetch(self, cached: CachedBlob, streamed: bool) -> None:
        region = await self.arena_space.allocate(cached) if streamed else None
        if region is not None:
            try:
                await self._stream(cached, region)
            except NoSpace as error:
                await self._leave_memory(cached, error)
            except Misled as error:
                if cached.leases:
                    raise
                log.warning("%s; no reader has seen it, so it is fetched again", error)
                await self._begin_anew(cached)
        else:
            await self._land(cached, urgent=not streamed)
        cached.on_disk = cached.disk_error is None

    async def _begin_anew(self, cached: CachedBlob) -> None:
        if isinstance(cached.content, Draft):
            cached.content.forget()
        cached.restart()
        await self._place_and_fetch(cached, streamed=True)

    async def _stream(self, cached: CachedBlob, region: Region) -> None:
        """Brings a blob to the arena, from disk if it is there, and writes it to disk
        afterwards."""
        copy = None
        if (blob := self._found(cached)) is not None:
            copy = DiskCopy(self.disk, cached.key, blob)
        cached.place = region
        cached.notify()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.arena_space.free_unless_lent, cached)
            await fetch_into(cached, region, self._contents, stall_s=self._stall_s, local=copy)
            self._settle(cached)
            undo.pop_all()
        if not self._found(cached):
            await self._write_behind.keep(cached, region)
        elif copy is not None and copy.wrong:
            await self._write_behind.mend(cached, region, copy)
            self._note_mended(cached, copy)

    async def _leave_memory(self, cached: CachedBlob, error: NoSpace) -> None:
        """The kernel has refused memory: brings the blob to disk, now or when it is next wanted.

        Raises `error` where a reader has borrowed the part that is in memory.
        """
        self.arena_space.refuse(cached, error)
        if cached.leases:
            raise error
        log.warning("%s goes to disk instead: %s", cached.name, error)
        cached.restart()
        await self._land(cached, urgent=False)

    async def _land(self, cached: CachedBlob, urgent: bool) -> None:
        """Brings a blob straight to a file of the disk tier, or verifies the one that is there."""
        if (blob := self._found(cached)) is not None:
            landing = check(self.disk, cached.key, blob)
        else:
            reservation = await self.disk_space.reserve(cached.content.size_bytes)
            landing = await asyncio.to_thread(
                land, self.disk, reservation, cached.key, cached.content
            )
        cached.place = landing
        cached.notify()
        with contextlib.ExitStack() as undo:
            undo.callback(self._leave, landing)
            # However this ends, no reader may borrow a descriptor that is about to be closed.
            undo.callback(setattr, cached, "place", None)
            if not cached.complete:
                await fetch_into(
                    *(cached, landing, self._contents),
                    stall_s=self._stall_s,
                    local=landing.local,
                    urgent=urgent,
                )
            self._settle(cached)
            await asyncio.to_thread(landing.keep, cached.key)
            undo.pop_all()
        cached.place = None
        if blob is not None and landing.local is not None and landing.local.wrong:
            self._note_mended(cached, landing.local)

    def _leave(self, landing: DiskLanding) -> None:
        """Gives the file up; while the agent stops, it stays for the next run, as after a kill."""
        if not self._closing:
            landing.drop()

    def _found(self, cached: CachedBlob) -> Blob | None:
        """The content, if the disk has a file of its name and size."""
        content = cached.content
        found = isinstance(content, Blob) and self.disk.has(cached.key, content.size_bytes)
        return content if found and isinstance(content, Blob) else None

    def _note_mended(self, cached: CachedBlob, copy: DiskCopy) -> None:
        wrong, count = len(set(copy.wrong)), len(cached.content.chunks)
        self.mended_chunks += wrong
        log.warning("%s: %d of %d chunks were wrong on disk; mended", cached.name, wrong, count)

    def _settle(self, cached: CachedBlob) -> None:
        """The blob is complete: from now on it is known by its digest too."""
        cached.settle()
        self._cached.setdefault(cached.key, cached)
