"""One tree of the node: its files' copies, and how far it has got."""

from __future__ import annotations

import asyncio

from hotplate.cache.catalog.tree_folder import TreeFolder
from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.errors import CacheError
from hotplate.cache.manifest import Manifest


class TreeState:
    """A manifest that is being brought here, or is here."""

    def __init__(
        self, digest: str, manifest: Manifest, folder: TreeFolder, linked: set[str]
    ) -> None:
        self.digest = digest
        self.manifest = manifest
        self.folder = folder
        self.entries = {entry.path: entry for entry in manifest.entries}
        self.digests = blob_digests(manifest)
        self.cached_blobs: dict[str, CachedBlob] = {}
        """The node's copy of each file, by path."""
        self.linked = linked
        """Paths that are complete files by now."""
        self.ready: asyncio.Task[None]
        """Ends when every file that is not streamed can be read."""
        self.whole: asyncio.Task[None]
        """Ends when every file can be read by anybody."""

    @property
    def bytes_verified(self) -> int:
        return sum(cached.verified_bytes for cached in set(self.cached_blobs.values()))

    @property
    def complete(self) -> bool:
        return self.whole.done() and self.error is None

    @property
    def error(self) -> BaseException | None:
        """The error that it failed with, if it has."""
        if not self.whole.done():
            return None
        return self._gone() if self.whole.cancelled() else self.whole.exception()

    async def until(self, stage: asyncio.Task[None]) -> None:
        """Waits for `ready` or `whole`. Raises the CacheError that it failed with."""
        await asyncio.wait({stage})
        if stage.cancelled():
            raise self._gone()
        stage.result()

    async def cancel(self) -> None:
        """Stops bringing it."""
        for task in (self.whole, self.ready):
            task.cancel()
        await asyncio.wait({self.whole, self.ready})

    def _gone(self) -> CacheError:
        return CacheError(f"tree {self.digest} is no longer wanted on this node")


def blob_digests(manifest: Manifest) -> dict[str, str]:
    """The digest of each file's blob, by path."""
    return {one.path: one.blob.digest for one in manifest.entries if one.blob is not None}
