"""Room on the disk tier: what goes for a newcomer, and what has to stay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.eviction import EvictionCandidate, evict
from hotplate.cache.errors import NoSpace
from hotplate.cache.tiers.disk import DiskTier, Reservation

log = logging.getLogger(__name__)


class DiskSpace:
    """Claims room for one blob at a time. Lives on the event loop."""

    def __init__(
        self,
        disk: DiskTier,
        held: Mapping[str, CachedBlob],
        drop: Callable[[str], Awaitable[None]],
        wanted: Callable[[], AbstractSet[str]],
    ) -> None:
        """`held` is what the node knows of each blob; `drop` forgets and deletes one.

        `wanted` says which blobs are in a tree that is wanted: these never leave the disk.
        """
        self._disk = disk
        self._held = held
        self._drop = drop
        self._claiming = asyncio.Lock()
        self._wanted = wanted

    async def claim(self, size_bytes: int) -> Reservation:
        """Room, for which blobs go that nobody needs. Raises NoSpace."""
        async with self._claiming:  # what one has made room for, another must not take
            eviction = evict(self._kept(), self._disk.lacks(size_bytes))
            for victim in eviction.victims:
                if not self._pin(victim.key, self._wanted()):
                    log.info("blob %s leaves the disk tier: %s", victim.key, eviction.reason)
                    await self._drop(victim.key)
            try:
                return self._disk.claim(size_bytes)
            except NoSpace as error:
                raise NoSpace(f"{error}: {eviction.reason}") from None

    def _kept(self) -> Iterator[EvictionCandidate]:
        """What the disk tier has, in the order of last use."""
        wanted = self._wanted()
        for order, (digest, size_bytes) in enumerate(self._disk.sizes().items()):
            holding = self._held.get(digest)
            used = (0, order) if holding is None else (1, holding.used)
            yield EvictionCandidate(digest, size_bytes, used, self._pin(digest, wanted))

    def _pin(self, digest: str, wanted: AbstractSet[str]) -> str:
        """Why a blob has to stay; empty when it may go."""
        if digest in wanted:
            return "in a tree"
        holding = self._held.get(digest)
        if holding is not None and holding.leases:
            return "leased"
        if holding is not None and holding.task is not None and not holding.task.done():
            return "being written" if holding.complete else "being fetched"
        return "linked elsewhere" if self._disk.linked(digest) else ""
