"""The contents of a node under the names that operators use, and what they can do with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from hotplate.cache.catalog.pulls import Pulls
from hotplate.cache.catalog.trees import Trees
from hotplate.cache.catalog.url_index import UrlIndex
from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError, UnknownBlob
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, chunk_digest
from hotplate.cache.origins.blob_source import read_at
from hotplate.cache.origins.locations import hide
from hotplate.cache.tiers.arena import Region


@dataclass(frozen=True)
class InventoryItem:
    """A URL or a tree of which this node has something."""

    name: str
    """The URL, or the manifest's digest."""
    kind: str
    """`url` or `tree`."""
    files: int
    bytes: int
    memory_bytes: int
    disk_bytes: int
    pinned: bool
    """Whether a program has one of its files open."""


@dataclass(frozen=True)
class VerificationReport:
    """What a verification found."""

    blobs: int
    bytes: int
    bad: tuple[str, ...]
    """Names of files that were damaged, and are dropped."""


class Inventory:
    """Lives on the event loop; reads files on threads."""

    def __init__(self, trees: Trees, pulls: Pulls, blob_table: BlobTable, ledger: UrlIndex) -> None:
        self._trees = trees
        self._pulls = pulls
        self._blob_table = blob_table
        self._ledger = ledger

    async def items(self) -> list[InventoryItem]:
        """Every URL and tree of which something is here, or on its way."""
        manifests = await asyncio.to_thread(self._manifests)
        held = {one.key: one for one in self._blob_table}
        items = []
        for location in self._ledger.locations():
            blobs = [(one, self._ledger.blob(one)) for one in location.versions]
            keys = [one.key if blob is None else blob.digest for one, blob in blobs]
            name = hide(location.url)
            items.append(self._item(name, "url", keys, location.size_bytes, held))
        for digest, manifest in manifests.items():
            keys = [blob.digest for blob in manifest.blobs()]
            items.append(self._item(digest, "tree", keys, manifest.size_bytes, held))
        return [item for item in items if item is not None]

    def _manifests(self) -> dict[str, Manifest]:
        """The manifests that are kept here, and undamaged."""
        found = {}
        for digest in self._trees.index:
            with contextlib.suppress(CacheError):
                found[digest] = self._trees.kept_manifest(digest)
        return found

    def _item(
        self, name: str, kind: str, keys: list[str], size_bytes: int, held: dict[str, CachedBlob]
    ) -> InventoryItem | None:
        """None for an item of which nothing is here."""
        sizes = self._blob_table.disk.sizes()
        known = [held[key] for key in keys if key in held and held[key].error is None]
        if keys and not known and not any(key in sizes for key in keys):
            return None
        return InventoryItem(
            name=name,
            kind=kind,
            files=len(keys),
            bytes=size_bytes,
            memory_bytes=sum(one.content.size_bytes for one in known if one.in_arena),
            disk_bytes=sum(sizes.get(key, 0) for key in keys),
            pinned=any(one.leases for one in known),
        )

    async def verify(self) -> VerificationReport:
        """Reads everything that is here and complete; what is damaged is dropped, to be fetched
        again.

        Raises CacheError when a tree's file is damaged and cannot be had from elsewhere.
        """
        held = {one.key: one for one in self._blob_table if one.complete}
        blobs = await self._blobs()
        count = read_bytes = 0
        bad = []
        for digest, (name, blob) in blobs.items():
            cached = held.get(digest)
            region = cached.place if cached is not None else None
            found = [isinstance(region, Region), self._blob_table.disk.path(digest).exists()]
            if not any(found):
                continue
            count, read_bytes = count + 1, read_bytes + sum(found) * blob.size_bytes
            right = not found[1] or await asyncio.to_thread(self._right_on_disk, digest, blob)
            if isinstance(region, Region):
                right = await asyncio.to_thread(_right_in_memory, region, blob) and right
            if not right:
                bad.append(name)
                await self._repair(digest, blob, name)
        return VerificationReport(count, read_bytes, tuple(bad))

    async def _repair(self, digest: str, blob: Blob, name: str) -> None:
        """A URL's blob is fetched again when it is next wanted; a tree's file is mended, since
        links lead to it."""
        if self._trees.index.naming(digest):
            await self._blob_table.mend(blob, self._trees.source(blob), name)
        else:
            await self._blob_table.drop(digest)

    async def remove(self, name: str) -> int:
        """Drops a URL's files, a tree, or one blob; the bytes that were freed on disk and in
        memory.

        A blob that another item needs stays. Raises UnknownBlob, and CacheError for a blob that a
        tree needs.
        """
        before = self._used_bytes()
        location = self._ledger.location(name.rstrip("/"))
        if location is not None:
            await self._pulls.remove(location.url)
            for version in location.versions:
                await self._blob_table.drop(version.key)
                blob = self._ledger.blob(version)
                if blob is not None and blob.digest not in self._trees.wanted_blobs():
                    await self._blob_table.drop(blob.digest)
        elif name in self._trees.index:
            await self._trees.delete(name)
        elif name in await self._blobs():
            if trees := self._trees.index.naming(name):
                raise CacheError(f"blob {name} belongs to tree {trees[0]}; remove that")
            await self._blob_table.drop(name)
        else:
            raise UnknownBlob(f"this node has nothing called {name}; 'hotplate cache ls' lists it")
        return before - self._used_bytes()

    async def warm(self, name: str) -> int:
        """Brings a URL's or a tree's files into memory; their bytes. Raises NoSpace."""
        if name in self._trees.index:
            cached_blobs = list((await self._trees.bring(name)).cached_blobs.values())
        else:
            pull = self._pulls.start(name)
            await self._pulls.ended(pull)
            cached_blobs = pull.cached_blobs
        for cached in cached_blobs:
            await self._blob_table.warm(cached)
        return sum(cached.content.size_bytes for cached in cached_blobs)

    async def _blobs(self) -> dict[str, tuple[str, Blob]]:
        """Each known blob and its name, by digest."""
        found: dict[str, tuple[str, Blob]] = {}
        for manifest in (await asyncio.to_thread(self._manifests)).values():
            for entry in manifest.entries:
                if entry.blob is not None:
                    found[entry.blob.digest] = (entry.path, entry.blob)
        for location in self._ledger.locations():
            for version in location.versions:
                if (blob := self._ledger.blob(version)) is not None:
                    found[blob.digest] = (version.name, blob)
        return found

    def _used_bytes(self) -> int:
        return self._blob_table.disk.used_bytes + self._blob_table.arena.used_bytes

    def _right_on_disk(self, digest: str, blob: Blob) -> bool:
        try:
            fd = self._blob_table.disk.lend(digest)
        except CacheError:
            return False
        try:
            scratch = memoryview(bytearray(min(CHUNK_BYTES, blob.size_bytes)))
            return os.fstat(fd).st_size == blob.size_bytes and all(
                read_at(fd, offset, part) == len(part) and chunk_digest(part) == expected
                for expected, offset, part in _parts(blob, scratch)
            )
        except OSError:
            return False
        finally:
            os.close(fd)


def _parts(blob: Blob, scratch: memoryview) -> Iterator[tuple[str, int, memoryview]]:
    for index, expected in enumerate(blob.chunks):
        offset, length = blob.span(index)
        yield expected, offset, scratch[:length]


def _right_in_memory(region: Region, blob: Blob) -> bool:
    for index, expected in enumerate(blob.chunks):
        offset, length = blob.span(index)
        with region.view[offset : offset + length] as part:
            if chunk_digest(part) != expected:
                return False
    return True
