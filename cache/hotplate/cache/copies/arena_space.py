"""Room in the arena: what leaves it for a newcomer, and what it has no room for."""

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
    """Gives regions to holdings, and takes them back. Lives on the event loop."""

    def __init__(self, arena: Arena, holdings: Iterable[CachedBlob]) -> None:
        self._arena = arena
        self._holdings = holdings
        self._refused: dict[str, str] = {}
        """Why the kernel had no memory for a blob, though the arena's limit allowed it."""

    @property
    def trouble(self) -> str:
        """Why the last file went to disk that the kernel had no memory for; empty if none did."""
        return next(reversed(self._refused.values()), "")

    def refuse(self, holding: CachedBlob, error: NoSpace) -> None:
        """The kernel had no memory for it: it goes to disk from now on."""
        self._refused[holding.key] = str(error)

    async def allocate(self, holding: CachedBlob) -> Region | None:
        """A region for the blob, taken from idle ones if need be; None when there is no room."""
        size_bytes = holding.content.size_bytes
        if holding.key in self._refused or not size_bytes:
            return None
        idle = {one.key: one for one in self._holdings if _idle(one)}
        kept = (
            EvictionCandidate(key, one.content.size_bytes, (0, one.used))
            for key, one in idle.items()
        )
        for victim in evict(kept, self._arena.lacks(size_bytes)).victims:
            if not idle[victim.key].leases:
                await self.free(idle[victim.key])
        try:
            return self._arena.allocate(holding.key, size_bytes)
        except NoSpace as error:
            log.info("%s goes to disk instead: %s", holding.name, error)
            return None

    async def free_unless_lent(self, holding: CachedBlob) -> None:
        if not holding.leases:
            await self.free(holding)

    async def free(self, holding: CachedBlob) -> None:
        region = holding.place
        if isinstance(region, Region):
            holding.place = None
            # unmapping gigabytes takes long enough to be felt on the loop
            await asyncio.to_thread(self._arena.release, region)


def _idle(holding: CachedBlob) -> bool:
    """Whether nobody would miss it in memory: what is not on disk would be lost."""
    return holding.in_arena and holding.on_disk and not holding.leases
