"""What this node has of one blob, and how its readers learn of new chunks. Lives on the event loop,
except for `verified`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hotplate.cache.copies.landing import DiskLanding
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.fetching.traffic import Traffic
from hotplate.cache.manifest import Content, Draft
from hotplate.cache.origins.blob_source import ByteSource
from hotplate.cache.tiers.arena import Region


@dataclass(frozen=True)
class OriginFile:
    """A file's content at its origin, and the names that it is known by."""

    content: Content
    origin: ByteSource
    key: str
    """A blob's digest, or a draft's own key."""
    name: str
    """Its name in error messages."""
    swarm: str = ""
    """The key that peers know it by; "" = `key`."""


class CachedBlob:
    """What this node has of one blob."""

    def __init__(self, file: OriginFile) -> None:
        self.content = file.content
        self.origin = file.origin
        self.key = file.key
        """The blob's digest, or a draft's name until its digests are known."""
        self.swarm = file.swarm or file.key
        """The key that all peers know the content by, whether or not they know its digests yet."""
        self.name = file.name
        self.whole = True
        """Whether all of it is to come, or only the chunks that its readers want."""
        self.done: list[int] = []
        """Verified chunks, in the order in which they were verified."""
        self.verified_bytes = 0
        self.on_disk = False
        """Whether the disk tier has it, verified by this process."""
        self.place: Region | DiskLanding | None = None
        """Where its bytes go while they arrive, and later its memory, as long as it has some."""
        self.error: CacheError | None = None
        """Why it cannot be brought."""
        self.disk_error: CacheError | None = None
        """Why it is not on disk, though all of it is here."""
        self.traffic = Traffic()
        self.leases = 0
        self.used = 0
        self.fetch: Fetch | None = None
        self.task: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def complete(self) -> bool:
        return len(self.done) == len(self.content.chunks)

    @property
    def in_arena(self) -> bool:
        return isinstance(self.place, Region)

    def verified(self, index: int) -> bool:
        """Notes a chunk, on a fetcher's thread, one at a time. Whether to call `notify` now:
        calling it for every chunk would cost the loop as much as the fetcher's own work on the
        chunk."""
        self.done.append(index)
        self.verified_bytes += self.content.span(index)[1]
        return self.complete or any(condition() for condition, _ in self._waiting)

    def restart(self) -> None:
        """Forgets what was verified: it comes again, to another place. No reader has borrowed
        it."""
        self.done.clear()
        self.verified_bytes = 0

    def settle(self) -> None:
        """All of it is here: a draft becomes the blob that it turned out to be."""
        if isinstance(self.content, Draft):
            self.content = self.content.blob()
            self.key = self.content.digest

    def notify(self) -> None:
        """Wakes the callers of `until` whose condition holds; most wait for the last of many
        chunks."""
        still = []
        for condition, future in self._waiting:
            if future.done():  # its caller was cancelled
                continue
            if self.error is not None or condition():
                future.set_result(None)
            else:
                still.append((condition, future))
        self._waiting = still  # only now may `verified` miss the others

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once `condition()` holds; it is evaluated whenever chunks have come.

        Raises the error that the blob failed with.
        """
        while not condition():
            if self.error is not None:
                raise self.error
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            if not condition():  # it may hold since before `verified` saw this waiter
                await future

    async def until_more(self, known: int) -> None:
        """Returns once more than `known` chunks are verified. Raises as `until`."""
        await self.until(lambda: len(self.done) > known)

    async def until_more_landed(self, known: int) -> None:
        """Returns once all is here, or more than `known` chunks lie in a file of the disk tier.

        Raises as `until`.
        """
        await self.until(lambda: self.complete or (len(self.done) > known and not self.in_arena))

    async def until_on_disk(self) -> None:
        await self.until(lambda: self.on_disk or self.disk_error is not None)
        if self.disk_error is not None:
            raise self.disk_error
