"""Space in the arena: what leaves it for a new blob, and what it has no space for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.eviction import EvictionCandidate, evict
from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.arena import Arena, Region

log = logging.getLogger(__name__)


class ArenaSpace:
    """Gives regions to blobs, and takes them back. Lives on the event loop."""

    def __init__(self, arena: Arena, cached_blobs: Iterable[CachedBlob]) -> None:
        self._arena = arena
        self._cached_blobs = cached_blobs
        self._refused: dict[str, str] = {}
        """Why the kernel refused memory for a blob that is within the arena's limit, by the blob's
        key."""

    @property
    def trouble(self) -> str:
        """Why the kernel refused memory for the last file that went to disk for that; "" if none
        did."""
        return next(reversed(self._refused.values()), "")

    def refuse(self, cached: CachedBlob, error: NoSpace) -> None:
        """The kernel refused memory for the blob: it goes to disk from now on."""
        self._refused[cached.key] = str(error)

    async def allocate(self, cached: CachedBlob) -> Region | None:
        """A region for the blob, for which idle blobs leave if need be; None when there is no
        space."""
        size_bytes = cached.content.size_bytes
        if cached.key in self._refused or not size_bytes:
            return None
        idle = {one.key: one for one in self._cached_blobs if _idle(one)}
        candidates = (
            EvictionCandidate(key, one.content.size_bytes, (0, one.used))
            for key, one in idle.items()
        )
        for victim in evict(candidates, self._arena.lacks(size_bytes)).victims:
            if not idle[victim.key].leases:
                await self.free(idle[victim.key])
        try:
            return self._arena.allocate(cached.key, size_bytes)
        except NoSpace as error:
            log.info("%s goes to disk instead: %s", cached.name, error)
            return None

    async def free_unless_lent(self, cached: CachedBlob) -> None:
        if not cached.leases:
            await self.free(cached)

    async def free(self, cached: CachedBlob) -> None:
        region = cached.place
        if isinstance(region, Region):
            cached.place = None
            # unmapping gigabytes takes long enough to be felt on the loop
            await asyncio.to_thread(self._arena.release, region)


def _idle(cached: CachedBlob) -> bool:
    """Whether the blob may leave memory: nothing reads it there, and the disk has it."""
    return cached.in_arena and cached.on_disk and not cached.leases
