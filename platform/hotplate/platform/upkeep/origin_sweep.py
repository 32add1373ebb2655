"""Files that were pushed stay at the origin while a version names them, and not much longer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from datetime import UTC, datetime

from hotplate.cache.store.blobs import BlobStore, Digests
from hotplate.platform.api.bentocloud.archives.unpacking import Unpacking
from hotplate.platform.store.artifacts import Artifacts


class OriginSweep:
    """Swept from time to time, if it is `ours`: others may keep their files in a bucket too."""

    def __init__(
        self, artifacts: Artifacts, blobs: BlobStore, unpacking: Unpacking, *, ours: bool
    ) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._unpacking = unpacking
        self._ours = ours
        self._unnamed = Digests()
        """The blobs that no version named at the last sweep."""

    async def sweep(self, wanted: Set[str]) -> Digests:
        """Remove what nobody names now and nobody named at the last sweep; what was removed.

        `wanted` are manifests that deployments use, also those that their version no longer names.
        Nothing is done while an upload is unpacked, which names last what it writes first; one
        that comes now waits. Raises CacheError and StoreFailed.
        """
        async with self._unpacking.standstill() as stands:
            if not (self._ours and stands):
                return Digests()
            named = await self._artifacts.run(self._artifacts.named_files)
            work = asyncio.create_task(asyncio.to_thread(self._sweep, named | wanted))
            try:
                return await asyncio.shield(work)
            finally:  # also when cancelled: nothing may be unpacked before the thread has ended
                await asyncio.wait({work})

    def _sweep(self, named: Set[str]) -> Digests:
        there = self._blobs.digests()
        manifests = {name: self._blobs.get_manifest(name) for name in named & there.manifests}
        blobs = {name: {b.digest for b in found.blobs()} for name, found in manifests.items()}
        found = unnamed(there, blobs)
        gone, self._unnamed = found & self._unnamed, found
        if self._blobs.holds.held(
            datetime.now(UTC)
        ):  # somebody copies what it was told to be there
            return Digests()
        self._blobs.remove(gone)
        return gone


def unnamed(there: Digests, named: Mapping[str, Set[str]]) -> Digests:
    """Blobs that belong to no manifest that is named; `named` has the blobs of each."""
    return Digests(there.manifests - named.keys(), there.blobs.difference(*named.values()))
