"""Space on the disk tier: what leaves it for a new blob, and what has to stay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.eviction import Eviction, EvictionCandidate, evict
from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.disk import DiskTier, Reservation

log = logging.getLogger(__name__)


class DiskSpace:
    """Reserves space for one blob at a time. Lives on the event loop."""

    def __init__(
        self,
        disk: DiskTier,
        held: Mapping[str, CachedBlob],
        drop: Callable[[str], Awaitable[None]],
        wanted: Callable[[], AbstractSet[str]],
    ) -> None:
        """`held` is what the node has of each blob; `drop` forgets and deletes one.

        `wanted` says which blobs are in a tree that is wanted: these never leave the disk.
        """
        self._disk = disk
        self._held = held
        self._drop = drop
        self._reserving = asyncio.Lock()
        self.give_up: Callable[[], Awaitable[bool]] = _nothing
        """Removes what is wanted least of all that is wanted; whether there was anything."""
        self._wanted = wanted

    async def reserve(self, size_bytes: int) -> Reservation:
        """Reserves space, for which blobs leave that are not needed. Raises NoSpace."""
        async with self._reserving:  # or another would take the space that is being made
            eviction = self._evict(size_bytes)
            while self._disk.lacks(size_bytes) and not eviction.victims and await self.give_up():
                eviction = self._evict(size_bytes)
            for victim in eviction.victims:
                if not self._pin(victim.key, self._wanted()):
                    log.info("blob %s leaves the disk tier: %s", victim.key, eviction.reason)
                    await self._drop(victim.key)
            try:
                return self._disk.reserve(size_bytes)
            except NoSpace as error:
                raise NoSpace(f"{error}: {eviction.reason}") from None

    def _evict(self, size_bytes: int) -> Eviction:
        return evict(self._candidates(), self._disk.lacks(size_bytes))

    def _candidates(self) -> Iterator[EvictionCandidate]:
        """The blobs of the disk tier, in the order of last use."""
        wanted = self._wanted()
        for order, (digest, size_bytes) in enumerate(self._disk.sizes().items()):
            cached = self._held.get(digest)
            used = (0, order) if cached is None else (1, cached.used)
            yield EvictionCandidate(digest, size_bytes, used, self._pin(digest, wanted))

    def _pin(self, digest: str, wanted: AbstractSet[str]) -> str:
        """Why a blob has to stay; empty when it may go."""
        if digest in wanted:
            return "in a tree"
        cached = self._held.get(digest)
        if cached is not None and cached.leases:
            return "leased"
        if cached is not None and cached.task is not None and not cached.task.done():
            return "being written" if cached.complete else "being fetched"
        return "linked elsewhere" if self._disk.linked(digest) else ""


async def _nothing() -> bool:
    return False
