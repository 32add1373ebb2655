"""What this node holds of each blob, and how a blob comes to be held.

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
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.disk_space import DiskSpace
from hotplate.cache.copies.landing import DiskCopy, DiskLanding, check, land
from hotplate.cache.copies.write_behind import WriteBehind
from hotplate.cache.errors import CacheError, ChunkCorrupt, Misled, NoSpace
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.manifest import Blob, Content, Draft
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.tiers.arena import Arena, Region
from hotplate.cache.tiers.disk import DiskTier

log = logging.getLogger(__name__)

_LANDINGS = 64
"""Files on their way to disk at once: a tree of thousands would run out of descriptors."""


class BlobTable:
    """The blobs of this node, by digest, and drafts by their names until they are blobs."""

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
        self._held: dict[str, CachedBlob] = {}
        self._closing = False
        self._uses = itertools.count(1)
        self.memory_room = ArenaSpace(arena, self)
        self._landings = asyncio.Semaphore(_LANDINGS)
        self.disk_room = DiskSpace(disk, self._held, self.drop, wanted)
        self._write_behind = WriteBehind(disk, self.disk_room.claim)
        self.mended_chunks = 0
        """How many were wrong on disk and have been written over."""

    def __iter__(self) -> Iterator[CachedBlob]:
        return iter(list(dict.fromkeys(self._held.values())))  # a draft has two names by now

    def bring(
        self,
        content: Content,
        origin: ByteSource,
        key: str,
        name: str,
        streamed: bool,
        whole: bool = True,
        swarm: str = "",
    ) -> CachedBlob:
        """Starts to bring a file's content here, or joins who did.

        `key` is a blob's digest, or what a draft is known by; `name` is how errors call it;
        `swarm` is what peers know it by, where that is not the key. One that is not brought whole
        is what its readers ask for, and goes with the last of them.
        """
        holding = self._held.get(key)
        if holding is not None and not self._lost(holding):
            self._widen(holding, whole)
            return holding
        holding = self._held[key] = CachedBlob(content, origin, key, name)
        holding.swarm = swarm or key
        holding.whole = whole
        holding.used = next(self._uses)
        holding.task = asyncio.get_running_loop().create_task(self._bring(holding, streamed))
        return holding

    def _widen(self, holding: CachedBlob, whole: bool) -> None:
        holding.whole = holding.whole or whole
        if whole and holding.fetch is not None:
            holding.fetch.take_whole()

    def get(self, key: str) -> CachedBlob | None:
        """What this node has of a blob, or of a draft, that somebody asked for. Thread-safe."""
        return self._held.get(key)

    @property
    def disk_trouble(self) -> str:
        """Why files are in memory only; empty when none is."""
        return self._write_behind.trouble

    def _lost(self, holding: CachedBlob) -> bool:
        """Whether it failed, or somebody emptied the disk under us."""
        gone = holding.place is None and not self.disk.has(holding.key, holding.content.size_bytes)
        return holding.error is not None or (holding.on_disk and gone)

    def verified_bytes(self, keys: Iterable[str]) -> int:
        """How much of that content is here."""
        return sum(held.verified_bytes for key in keys if (held := self._held.get(key)))

    def want(self, holding: CachedBlob, indices: Iterable[int]) -> None:
        """A reader waits for these chunks."""
        if holding.fetch is not None:
            holding.fetch.want(indices)

    @contextlib.asynccontextmanager
    async def lend(self, holding: CachedBlob, disk_first: bool = False) -> AsyncIterator[int]:
        """A read-only descriptor of the blob's bytes, closed on exit with the lease.

        Its memory is not taken back before. `disk_first` prefers the file on disk to the copy in
        memory, where it has both. Raises the error that the blob failed with.
        """
        holding.leases += 1
        try:
            await holding.until(lambda: holding.place is not None or holding.on_disk)
            place = None if disk_first and holding.on_disk else holding.place
            fd = place.lend() if place is not None else self.disk.lend(holding.key)
            try:
                yield fd
            finally:
                os.close(fd)
        finally:
            holding.leases -= 1
            holding.used = next(self._uses)
            if not holding.leases and not holding.whole and not holding.complete:
                self._held.pop(holding.key, None)
                await self._stop(holding)
            forgotten = self._held.get(holding.key) is not holding
            if not holding.leases and (forgotten or holding.error is not None):
                await self.memory_room.free(holding)

    async def drop(self, digest: str) -> None:
        """Forgets a blob and deletes its copies; open leases keep theirs."""
        holding = self._held.pop(digest, None)
        if holding is not None:
            await self._stop(holding)
            await self.memory_room.free_unless_lent(holding)
        self.disk.discard(digest)

    async def mend(self, blob: Blob, origin: ByteSource, name: str) -> None:
        """Verifies a blob's file where it lies, and writes over what is wrong. Raises CacheError.

        All links to the file see it; memory that was lent of it stays what it is.
        """
        old = self._held.pop(blob.digest, None)
        if old is not None:
            await self._stop(old)
            await self.memory_room.free_unless_lent(old)
        holding = self.bring(blob, origin, blob.digest, name, streamed=False)
        await holding.until(lambda: holding.on_disk)

    async def warm(self, holding: CachedBlob) -> None:
        """Brings a blob of the disk tier to the arena too.

        Raises NoSpace when it does not fit, ChunkCorrupt when the file is damaged.
        """
        await holding.until(lambda: holding.on_disk or (holding.complete and holding.in_arena))
        content = holding.content
        if holding.in_arena or not isinstance(content, Blob) or not content.size_bytes:
            return
        region = await self.memory_room.allocate(holding)
        if region is None:
            raise NoSpace(
                f"{holding.name} of {content.size_bytes} bytes does not fit into the arena's "
                f"{self.arena.limit_bytes}; give the agent more --memory, or 'cache rm' something"
            )
        copy = DiskCopy(self.disk, holding.key, content)
        try:
            for index in range(len(content.chunks)):
                region.reserve(*content.span(index))
                if not await asyncio.to_thread(copy.take, index, region):
                    raise ChunkCorrupt(f"{holding.name} is damaged on disk; run 'cache verify'")
            if holding.place is None and self._held.get(holding.key) is holding:
                holding.place, region = region, None
                holding.used = next(self._uses)
        finally:
            if region is not None:
                await asyncio.to_thread(self.arena.release, region)

    async def close(self, flush_s: float) -> None:
        """Stops fetching, waits for what is complete to be on disk, and gives the memory back.

        What was on its way to the disk tier stays there for the next run.
        """
        self._closing = True
        self._contents.close()
        for holding in self:
            if not holding.complete or holding.disk_error is not None:
                await self._stop(holding)
        writing = [one.task for one in self if one.task is not None and not one.task.done()]
        if writing:
            await asyncio.wait(writing, timeout=flush_s)
        self._write_behind.close()
        for holding in self:
            await self.memory_room.free(holding)

    async def _stop(self, holding: CachedBlob) -> None:
        if holding.task is not None and not holding.task.done():
            holding.task.cancel()
            await asyncio.wait({holding.task})

    async def _bring(self, holding: CachedBlob, streamed: bool) -> None:
        try:
            if streamed:
                await self._place_and_fetch(holding, streamed)
            else:
                async with self._landings:
                    await self._place_and_fetch(holding, streamed)
        except CacheError as error:
            holding.error = error
        except Exception as error:  # a bug must not leave replicas hanging
            log.exception("blob %s (%s)", holding.key, holding.name)
            holding.error = CacheError(f"{holding.name}: {error!r}")
        except asyncio.CancelledError:
            holding.error = CacheError(f"{holding.name}: no longer wanted on this node")
            raise
        finally:
            holding.notify()

    async def _place_and_fetch(self, holding: CachedBlob, streamed: bool) -> None:
        region = await self.memory_room.allocate(holding) if streamed else None
        if region is not None:
            try:
                await self._stream(holding, region)
            except NoSpace as error:
                await self._leave_memory(holding, error)
            except Misled as error:
                if holding.leases:
                    raise
                log.warning("%s; it is brought anew, nobody has seen it", error)
                await self._begin_anew(holding)
        else:
            await self._land(holding, urgent=not streamed)
        holding.on_disk = holding.disk_error is None

    async def _begin_anew(self, holding: CachedBlob) -> None:
        if isinstance(holding.content, Draft):
            holding.content.forget()
        holding.restart()
        await self._place_and_fetch(holding, streamed=True)

    async def _stream(self, holding: CachedBlob, region: Region) -> None:
        """Brings a blob to the arena, from disk if it was there, and then to disk."""
        copy = None
        if (blob := self._found(holding)) is not None:
            copy = DiskCopy(self.disk, holding.key, blob)
        holding.place = region
        holding.notify()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self.memory_room.free_unless_lent, holding)
            await fetch_into(holding, region, self._contents, stall_s=self._stall_s, local=copy)
            self._settle(holding)
            undo.pop_all()
        if not self._found(holding):
            await self._write_behind.keep(holding, region)
        elif copy is not None and copy.wrong:
            await self._write_behind.mend(holding, region, copy)
            self._note_mended(holding, copy)

    async def _leave_memory(self, holding: CachedBlob, error: NoSpace) -> None:
        """The kernel has refused memory: brings the blob to disk, now or when it is next wanted.

        Raises `error` where somebody has borrowed what there is of it.
        """
        self.memory_room.refuse(holding, error)
        if holding.leases:
            raise error
        log.warning("%s goes to disk instead: %s", holding.name, error)
        holding.restart()
        await self._land(holding, urgent=False)

    async def _land(self, holding: CachedBlob, urgent: bool) -> None:
        """Brings a blob straight to a file of the disk tier, or verifies the one that is there."""
        if (blob := self._found(holding)) is not None:
            landing = check(self.disk, holding.key, blob)
        else:
            claim = await self.disk_room.claim(holding.content.size_bytes)
            landing = await asyncio.to_thread(land, self.disk, claim, holding.key, holding.content)
        holding.place = landing
        holding.notify()
        with contextlib.ExitStack() as undo:
            undo.callback(self._leave, landing)
            # Nobody may borrow a descriptor that is about to be closed, however this ends.
            undo.callback(setattr, holding, "place", None)
            if not holding.complete:
                await fetch_into(
                    *(holding, landing, self._contents),
                    stall_s=self._stall_s,
                    local=landing.local,
                    urgent=urgent,
                )
            self._settle(holding)
            await asyncio.to_thread(landing.keep, holding.key)
            undo.pop_all()
        holding.place = None
        if blob is not None and landing.local is not None and landing.local.wrong:
            self._note_mended(holding, landing.local)

    def _leave(self, landing: DiskLanding) -> None:
        """Whoever comes after a stop goes on with it, as after a kill."""
        if not self._closing:
            landing.drop()

    def _found(self, holding: CachedBlob) -> Blob | None:
        """The content, if there is a file of its name and size on disk."""
        content = holding.content
        found = isinstance(content, Blob) and self.disk.has(holding.key, content.size_bytes)
        return content if found and isinstance(content, Blob) else None

    def _note_mended(self, holding: CachedBlob, copy: DiskCopy) -> None:
        wrong, count = len(set(copy.wrong)), len(holding.content.chunks)
        self.mended_chunks += wrong
        log.warning("%s: %d of %d chunks were wrong on disk; mended", holding.name, wrong, count)

    def _settle(self, holding: CachedBlob) -> None:
        """Complete: from now on it is known by its digest too."""
        holding.settle()
        self._held.setdefault(holding.key, holding)
