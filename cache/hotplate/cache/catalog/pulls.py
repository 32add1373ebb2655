"""Pulls: all files at a URL are brought to this node. Runs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from hotplate.cache.catalog.peer_url_index import PeerUrlIndex, agreed
from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
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
"""Pauses before a busy origin is asked again for its list of files."""


@dataclass(eq=False)
class Pull:
    """All files of one URL on their way here."""

    url: str
    streamed: bool = True
    location: Location | None = None
    """None while it is being listed."""
    cached_blobs: list[CachedBlob] = field(default_factory=list)
    before: Traffic = field(default_factory=Traffic)
    """What had been read for these files when the pull began."""
    asking: Traffic = field(default_factory=Traffic)
    """What was read to find out which digests are right."""
    task: asyncio.Task[None] = field(init=False)
    ended_by: str = "no longer wanted on this node"
    """Why it was cancelled, once it is."""

    @property
    def size_bytes(self) -> int | None:
        return None if self.location is None else self.location.size_bytes

    @property
    def verified_bytes(self) -> int:
        return sum(cached.verified_bytes for cached in self.cached_blobs)

    @property
    def traffic(self) -> Traffic:
        """What this pull has read so far."""
        now = Traffic()
        for one in (self.asking, *(cached.traffic for cached in self.cached_blobs)):
            now.add(origin_bytes=one.origin_bytes, peers_bytes=one.peers_bytes)
        now.add(origin_bytes=-self.before.origin_bytes, peers_bytes=-self.before.peers_bytes)
        return now


class Pulls:
    """The pulls of this node, by URL."""

    def __init__(
        self, blob_table: BlobTable, ledger: UrlIndex, schemes: Schemes, peers: PeerUrlIndex
    ) -> None:
        self._blob_table = blob_table
        self._ledger = ledger
        self._peers = peers
        self._schemes = schemes
        self._pulls: dict[str, Pull] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}

    def start(self, url: str, streamed: bool = True) -> Pull:
        """Starts to bring the URL's files, or joins a pull that is under way.

        `streamed`: to memory first, where there is space; else straight to disk.
        """
        url = url.rstrip("/")
        pull = self._pulls.get(url)
        if pull is None or pull.task.done():
            pull = self._pulls[url] = Pull(url, streamed)
            pull.task = asyncio.create_task(self._run(pull))
            pull.task.add_done_callback(retrieve_error)
        return pull

    def get(self, url: str) -> Pull:
        """Raises UnknownUrl for a URL that was not pulled here."""
        try:
            return self._pulls[url.rstrip("/")]
        except KeyError:
            raise UnknownUrl(f"nobody has pulled {url} on this node; PUT it first") from None

    async def ended(self, pull: Pull) -> None:
        """Waits until all of it is here. Raises the CacheError that it failed with."""
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
        """Starts to bring the one file at the URL, or only the chunks that its readers want.

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
        pull.cached_blobs = [self.bring(one, streamed=pull.streamed) for one in location.versions]
        pull.before = pull.traffic
        pull.before.add(origin_bytes=-pull.asking.origin_bytes)
        pull.location = location
        try:
            async with asyncio.TaskGroup() as group:
                for cached in pull.cached_blobs:
                    group.create_task(_arrival(cached))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await self._settled(location.versions)

    async def _find(self, url: str, read: Traffic) -> Location:
        """The files at the URL now, or those of the last time that they could be listed.

        `read` counts the bytes of the files that had to be read to find out.
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
        """Takes over the digests that peers agree on; the files that one of them has seen."""
        reports: dict[Version, list[Blob]] = {}
        for seen, blobs in await self._peers.ask(url):
            here = here or seen
            for version in blobs.keys() & set(here.versions):
                reports.setdefault(version, []).append(blobs[version])
        for version, found in reports.items():
            if len(found) < 2:
                continue  # of a single report, each chunk is corroborated as it comes
            source = self._schemes.of(version.url).source(version)
            blob = await asyncio.to_thread(agreed, found, source, read)
            await asyncio.to_thread(self._ledger.set_blob, version, blob)
        if here is not None:
            await asyncio.to_thread(self._ledger.set_location, here)
        return here

    def locations(self) -> list[Location]:
        """The files at each URL that is kept here."""
        return self._ledger.locations()

    def bring(self, version: Version, whole: bool = True, streamed: bool = True) -> CachedBlob:
        """Starts to bring one version of a file, or joins a fetch that is under way."""
        blob = self._ledger.blob(version)
        source = self._schemes.of(version.url).source(version)
        if blob is not None:
            # Under the version's key, as on nodes that do not know its digests yet: one swarm.
            file = OriginFile(blob, source, blob.digest, version.name, swarm=version.key)
            return self._blob_table.bring(file, streamed, whole)
        draft = Draft(version.size_bytes, self._ledger.draft(version))
        file = OriginFile(draft, source, version.key, version.name)
        cached = self._blob_table.bring(file, streamed, whole)
        if version.key not in self._settling:
            task = asyncio.create_task(self._settle(version, cached))
            self._settling[version.key] = task
            task.add_done_callback(lambda _: self._settling.pop(version.key))
            task.add_done_callback(retrieve_error)
        return cached

    async def _settle(self, version: Version, cached: CachedBlob) -> None:
        """Notes the digests of a draft once all of it is here."""
        await self._arrival_noted(version, cached)
        content = cached.content
        blob = content.blob() if isinstance(content, Draft) else content
        assert isinstance(blob, Blob)
        if await asyncio.to_thread(self._ledger.set_blob, version, blob) != blob:
            await self._blob_table.drop(blob.digest)
            raise ChunkCorrupt(f"{version.name} is not what it was when it was first fetched")

    async def _arrival_noted(self, version: Version, cached: CachedBlob) -> None:
        """Notes digests while chunks come to disk, so that a restart goes on from there."""
        known = 0
        while not cached.complete:
            await cached.until_more_landed(known)
            new, known = cached.done[known:], len(cached.done)
            if not cached.complete:
                digests = {index: cached.content.chunks[index] for index in new}
                await asyncio.to_thread(self._ledger.note_chunks, version, digests)

    async def _settled(self, versions: Iterable[Version]) -> None:
        tasks = {self._settling[one.key] for one in versions if one.key in self._settling}
        if tasks:
            await asyncio.gather(*map(asyncio.shield, tasks))


async def _arrival(cached: CachedBlob) -> None:
    await cached.until(lambda: cached.complete)


def failure(pull: Pull) -> CacheError | None:
    """Why the pull has failed, once it has."""
    if not pull.task.done():
        return None
    if pull.task.cancelled():
        return CacheError(f"{pull.url}: {pull.ended_by}")
    error = pull.task.exception()
    return error if error is None or isinstance(error, CacheError) else CacheError(repr(error))
