"""How a blob comes to this node.

A streamed blob goes to the arena, where replicas read it while it arrives, and is written to disk
behind. Any other blob, and a streamed one that the arena has no space for, goes straight to a file
of the disk tier. A copy already on disk is read and verified instead of the origin, chunk by chunk,
and mended where it is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from hotplate.cache.copies.arena_space import ArenaSpace
from hotplate.cache.copies.arrival import fetch_into
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.disk_space import DiskSpace
from hotplate.cache.copies.landing import DiskCopy, DiskLanding, check, land
from hotplate.cache.copies.write_behind import WriteBehind
from hotplate.cache.errors import CacheError, Misled, NoSpace
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.manifest import Blob, Draft
from hotplate.cache.tiers.arena import Region
from hotplate.cache.tiers.disk import DiskTier

log = logging.getLogger(__name__)

_LANDINGS = 64
"""Files on their way to disk at once: a tree of thousands would use up the descriptors."""


class Intake:
    """Brings blobs to the arena and to disk. Lives on the event loop."""

    def __init__(
        self,
        disk: DiskTier,
        arena_space: ArenaSpace,
        disk_space: DiskSpace,
        contents: Contents,
        stall_s: float,
        on_settled: Callable[[CachedBlob], None],
    ) -> None:
        """A fetch without a new byte for `stall_s` fails. `on_settled` is called with each blob
        once it is complete and has its digest."""
        self.mended_chunks = 0
        """How many chunks were wrong on disk and have been written over."""
        self._disk = disk
        self._arena_space = arena_space
        self._disk_space = disk_space
        self._fetch = partial(fetch_into, contents=contents, stall_s=stall_s)
        self._on_settled = on_settled
        self._landings = asyncio.Semaphore(_LANDINGS)
        self._write_behind = WriteBehind(disk, disk_space.reserve)
        self._stopping = False

    @property
    def disk_trouble(self) -> str:
        """Why files are in memory only; empty when none is."""
        return self._write_behind.trouble

    def stop(self) -> None:
        """From now on a file that is given up stays on disk, for the next run."""
        self._stopping = True

    def close(self) -> None:
        """Gives up the copies to disk that have not begun."""
        self._write_behind.close()

    async def bring(self, cached: CachedBlob, streamed: bool) -> None:
        """Returns when the blob is where it belongs, or cannot be brought: see its `error`."""
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
        region = await self._arena_space.allocate(cached) if streamed else None
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
            copy = DiskCopy(self._disk, cached.key, blob)
        cached.place = region
        cached.notify()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(self._arena_space.free_unless_lent, cached)
            await self._fetch(cached, region, local=copy)
            cached.settle()
            self._on_settled(cached)
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
        self._arena_space.refuse(cached, error)
        if cached.leases:
            raise error
        log.warning("%s goes to disk instead: %s", cached.name, error)
        cached.restart()
        await self._land(cached, urgent=False)

    async def _land(self, cached: CachedBlob, urgent: bool) -> None:
        """Brings a blob straight to a file of the disk tier, or verifies the one that is there."""
        if (blob := self._found(cached)) is not None:
            landing = check(self._disk, cached.key, blob)
        else:
            reservation = await self._disk_space.reserve(cached.content.size_bytes)
            landing = await asyncio.to_thread(
                land, self._disk, reservation, cached.key, cached.content
            )
        cached.place = landing
        cached.notify()
        with contextlib.ExitStack() as undo:
            undo.callback(self._leave, landing)
            # However this ends, no reader may borrow a descriptor that is about to be closed.
            undo.callback(setattr, cached, "place", None)
            if not cached.complete:
                await self._fetch(cached, landing, local=landing.local, urgent=urgent)
            cached.settle()
            self._on_settled(cached)
            await asyncio.to_thread(landing.keep, cached.key)
            undo.pop_all()
        cached.place = None
        if blob is not None and landing.local is not None and landing.local.wrong:
            self._note_mended(cached, landing.local)

    def _leave(self, landing: DiskLanding) -> None:
        """Gives the file up; while the agent stops, it stays for the next run, as after a kill."""
        if not self._stopping:
            landing.drop()

    def _found(self, cached: CachedBlob) -> Blob | None:
        """The content, if the disk has a file of its name and size."""
        content = cached.content
        found = isinstance(content, Blob) and self._disk.has(cached.key, content.size_bytes)
        return content if found and isinstance(content, Blob) else None

    def _note_mended(self, cached: CachedBlob, copy: DiskCopy) -> None:
        wrong, count = len(set(copy.wrong)), len(cached.content.chunks)
        self.mended_chunks += wrong
        log.warning("%s: %d of %d chunks were wrong on disk; mended", cached.name, wrong, count)
