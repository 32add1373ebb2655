"""Pulls: bringing what lies at a URL to this node. Runs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from hotplate.cache.catalog.peer_url_index import PeerUrlIndex, agreed
from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    OriginBusy,
    OriginUnavailable,
    UnknownUrl,
)
from hotplate.cache.fetching.traffic import Traffic
from hotplate.cache.manifest import Blob, Draft
from hotplate.cache.origins.locations import Location, Version
from hotplate.cache.origins.schemes import Schemes
from hotplate.machine.background import retrieve_error

_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Before an origin that has no time is asked again what lies there."""


@dataclass(eq=False)
class Pull:
    """All files of one URL on their way here."""

    url: str
    streamed: bool = True
    location: Location | None = None
    """None while it is being listed."""
    holdings: list[CachedBlob] = field(default_factory=list)
    before: Traffic = field(default_factory=Traffic)
    """What had been read for these files when the pull began."""
    asking: Traffic = field(default_factory=Traffic)
    """What was read to learn which digests are right."""
    task: asyncio.Task[None] = field(init=False)
    ended_by: str = "no longer wanted on this node"
    """Why it was cancelled, when it was."""

    @property
    def size_bytes(self) -> int | None:
        return None if self.location is None else self.location.size_bytes

    @property
    def verified_bytes(self) -> int:
        return sum(holding.verified_bytes for holding in self.holdings)

    @property
    def traffic(self) -> Traffic:
        """What this pull has read so far."""
        now = Traffic()
        for one in (self.asking, *(holding.traffic for holding in self.holdings)):
            now.add(origin_bytes=one.origin_bytes, peers_bytes=one.peers_bytes)
        now.add(origin_bytes=-self.before.origin_bytes, peers_bytes=-self.before.peers_bytes)
        return now


class Pulls:
    """The pulls of this node, by URL."""

    def __init__(
        self, holdings: BlobTable, ledger: UrlIndex, schemes: Schemes, peers: PeerUrlIndex
    ) -> None:
        self._holdings = holdings
        self._ledger = ledger
        self._peers = peers
        self._schemes = schemes
        self._pulls: dict[str, Pull] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}

    def start(self, url: str, streamed: bool = True) -> Pull:
        """Begins to bring the URL's files, or joins who is bringing them.

        `streamed`: to memory first, where there is room; else straight to disk.
        """
        url = url.rstrip("/")
        pull = self._pulls.get(url)
        if pull is None or pull.task.done():
            pull = self._pulls[url] = Pull(url, streamed)
            pull.task = asyncio.create_task(self._run(pull))
            pull.task.add_done_callback(retrieve_error)
        return pull

    def get(self, url: str) -> Pull:
        """Raises UnknownUrl for a URL that nobody pulled."""
        try:
            return self._pulls[url.rstrip("/")]
        except KeyError:
            raise UnknownUrl(f"nobody has pulled {url} on this node; PUT it first") from None

    async def ended(self, pull: Pull) -> None:
        """Returns when all of it is here. Raises the CacheError that it failed with."""
        await asyncio.wait({pull.task})
        if (error := failure(pull)) is not None:
            raise error

    async def remove(self, url: str) -> None:
        """Ends a pull that is under way; the URL is no longer kept here."""
        pull = self._pulls.pop(url, None)
        if pull is not None:
            pull.task.cancel()
            await asyncio.wait({pull.task})
        await asyncio.to_thread(self._ledger.forget, url)

    async def open(self, url: str, whole: bool = True) -> CachedBlob:
        """Begins to bring the one file at the URL, or what its readers will want of it.

        Raises UnknownUrl for a folder.
        """
        location = await self._find(url, Traffic())
        if len(location.versions) != 1:
            raise UnknownUrl(
                f"{url} is a folder of {len(location.versions)} files; open one of them"
            )
        return self.bring(location.versions[0], whole)

    async def close(self) -> None:
        for pull in self._pulls.values():
            pull.ended_by = "the agent is stopping; ask again when it runs"
        tasks = [pull.task for pull in self._pulls.values()] + list(self._settling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, pull: Pull) -> None:
        location = await self._find(pull.url, pull.asking)
        pull.holdings = [self.bring(one, streamed=pull.streamed) for one in location.versions]
        pull.before = pull.traffic
        pull.before.add(origin_bytes=-pull.asking.origin_bytes)
        pull.location = location
        try:
            async with asyncio.TaskGroup() as group:
                for holding in pull.holdings:
                    group.create_task(_arrival(holding))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await self._settled(location.versions)

    async def _find(self, url: str, read: Traffic) -> Location:
        """What is at the URL now, or was when somebody last could look.

        `read` counts what of the files had to be read to tell.
        """
        files = self._schemes.of(url)
        for pause_s in (*_PAUSES_S, None):
            try:
                location = await asyncio.to_thread(files.find, url)
                break
            except OriginUnavailable as error:
                known = self._ledger.location(url) or await self._ask_peers(url, read)
                if known is not None:
                    return known
                if pause_s is None or not isinstance(error, OriginBusy):
                    raise
                await asyncio.sleep(pause_s)
        await asyncio.to_thread(self._ledger.set_location, location)
        if any(self._ledger.blob(version) is None for version in location.versions):
            await self._ask_peers(url, read, location)
        return location

    async def _ask_peers(
        self, url: str, read: Traffic, here: Location | None = None
    ) -> Location | None:
        """Learns the digests that peers know of a URL's files; the files that one has seen."""
        claims: dict[Version, list[Blob]] = {}
        for seen, blobs in await self._peers.ask(url):
            here = here or seen
            for version in blobs.keys() & set(here.versions):
                claims.setdefault(version, []).append(blobs[version])
        for version, claimed in claims.items():
            if len(claimed) < 2:
                continue  # what one alone says is believed chunk by chunk, and heard others on
            source = self._schemes.of(version.url).source(version)
            blob = await asyncio.to_thread(agreed, claimed, source, read)
            await asyncio.to_thread(self._ledger.set_blob, version, blob)
        if here is not None:
            await asyncio.to_thread(self._ledger.set_location, here)
        return here

    def locations(self) -> list[Location]:
        """What was found at the URLs that are kept here."""
        return self._ledger.locations()

    def bring(self, version: Version, whole: bool = True, streamed: bool = True) -> CachedBlob:
        """Begins to bring one file in a version that was found, or joins who does."""
        blob = self._ledger.blob(version)
        source = self._schemes.of(version.url).source(version)
        if blob is not None:
            # By the version's key, like those who do not know its digests yet: one swarm.
            return self._holdings.bring(
                blob, source, blob.digest, version.name, streamed, whole, swarm=version.key
            )
        draft = Draft(version.size_bytes, self._ledger.draft(version))
        holding = self._holdings.bring(draft, source, version.key, version.name, streamed, whole)
        if version.key not in self._settling:
            task = asyncio.create_task(self._settle(version, holding))
            self._settling[version.key] = task
            task.add_done_callback(lambda _: self._settling.pop(version.key))
            task.add_done_callback(retrieve_error)
        return holding

    async def _settle(self, version: Version, holding: CachedBlob) -> None:
        """Notes the digests of a draft once all of it is here."""
        await self._arrival_noted(version, holding)
        content = holding.content
        blob = content.blob() if isinstance(content, Draft) else content
        assert isinstance(blob, Blob)
        if await asyncio.to_thread(self._ledger.set_blob, version, blob) != blob:
            await self._holdings.drop(blob.digest)
            raise ChunkCorrupt(f"{version.name} is not what it was when it was first fetched")

    async def _arrival_noted(self, version: Version, holding: CachedBlob) -> None:
        """Notes what is on disk as it comes, so that a restart goes on from there."""
        told = 0
        while not holding.complete:
            await holding.until_more_landed(told)
            news, told = holding.done[told:], len(holding.done)
            if not holding.complete:
                digests = {index: holding.content.chunks[index] for index in news}
                await asyncio.to_thread(self._ledger.note_chunks, version, digests)

    async def _settled(self, versions: Iterable[Version]) -> None:
        tasks = {self._settling[one.key] for one in versions if one.key in self._settling}
        if tasks:
            await asyncio.gather(*map(asyncio.shield, tasks))


async def _arrival(holding: CachedBlob) -> None:
    await holding.until(lambda: holding.complete)


def failure(pull: Pull) -> CacheError | None:
    """Why the pull has failed, once it has."""
    if not pull.task.done():
        return None
    if pull.task.cancelled():
        return CacheError(f"{pull.url}: {pull.ended_by}")
    error = pull.task.exception()
    return error if error is None or isinstance(error, CacheError) else CacheError(repr(error))
