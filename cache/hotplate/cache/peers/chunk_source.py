"""What this node can give to its peers: chunks on their way, in memory and on disk.

Called on the threads that serve peers. Nothing is given that was not verified: a chunk on disk is
verified again each time, since disks lose data.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.landing import DiskLanding
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import CHUNK_BYTES, Blob, chunk_digest, count_chunks
from hotplate.cache.origins.blob_source import read_at
from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.attestations import DIGESTS_PER_REQUEST
from hotplate.cache.swarm.chunk_request import ChunkOffer, ChunkRequest
from hotplate.cache.swarm.participants import PeerState, number_at
from hotplate.cache.tiers.arena import Region
from hotplate.cache.tiers.disk import DiskTier

_TURN_S = 0.05
"""How long a request waits for a content whose fetch is about to begin, or has just ended."""


class ChunkSource:
    """All verified chunks of this node. Thread-safe."""

    def __init__(
        self,
        contents: Contents,
        blob_table: BlobTable,
        disk: DiskTier,
        blob_of: Callable[[str], Blob | None],
        clock: Callable[[], float],
    ) -> None:
        """`blob_of` gives the blob that a draft's key stands for, once its digests are known."""
        self._contents = contents
        self._blob_table = blob_table
        self._disk = disk
        self._blob_of = blob_of
        self._clock = clock

    def state_for(self, peer: str, key: str) -> PeerState | None:
        """The next message to a peer about a content; None where nothing of it is here or comes."""
        blob = self._blob_of(key)
        fetch = self._find(key, blob)
        if fetch is not None:
            return fetch.state_for(peer)
        digest = key if blob is None else blob.digest
        count = self._count_kept(digest)
        if count is None:
            return None
        cached = self._blob_table.get(digest)
        here = cached is None or cached.complete
        # The number follows those of all messages that were sent while it was fetched.
        return PeerState(((1 << count) - 1) if here else 0, number=number_at(self._clock()))

    def offer(self, request: ChunkRequest, hold_s: float) -> ChunkOffer:
        """The chunk, or why it cannot be given; waits up to `hold_s` for a chunk on its way."""
        blob = self._blob_of(request.key)
        fetch = self._find(request.key, blob)
        if fetch is not None:
            offer = fetch.wait_for_chunk(request, self._clock() + hold_s, self._clock)
            if offer is not None:
                return offer
        digest = request.digest
        if blob is not None and not digest and request.index < len(blob.chunks):
            digest = blob.chunks[request.index]
        return self._kept(request.key if blob is None else blob.digest, request.index, digest)

    def digests(self, request: ChunkRequest) -> list[str]:
        """The digests of the chunk and of the next ones; "" for each that is not known."""
        blob = self._blob_of(request.key)
        if blob is not None:
            return list(blob.chunks[request.index : request.index + DIGESTS_PER_REQUEST])
        fetch = self._find(request.key, None)
        return [] if fetch is None else fetch.digests(request.index, DIGESTS_PER_REQUEST)

    def other_holders(self, request: ChunkRequest) -> list[str]:
        """Other peers that have the chunk, as long as the content is on its way here."""
        fetch = self._find(request.key, self._blob_of(request.key))
        return [] if fetch is None else fetch.other_holders(request.index, request.asker)

    def delivered(self, request: ChunkRequest) -> None:
        """The asker has received the chunk."""
        fetch = self._find(request.key, self._blob_of(request.key))
        if fetch is not None:
            fetch.note_have(request.asker, 1 << request.index)

    def _find(self, key: str, blob: Blob | None) -> Fetch | None:
        """The fetch of the content, if it is on its way here."""
        return self._contents.find(key) if blob is None else self._contents.find(key, blob.digest)

    def _count_kept(self, name: str) -> int | None:
        cached = self._blob_table.get(name)
        if cached is not None and cached.error is None:
            return len(cached.content.chunks)
        size_bytes = self._disk.sizes().get(name)
        if size_bytes is None or not self._disk.has(name, size_bytes):
            return None
        return count_chunks(size_bytes)

    def _kept(self, name: str, index: int, digest: str) -> ChunkOffer:
        count = self._count_kept(name)
        if count is None or not 0 <= index < count:
            return ChunkOffer(Missed.LACKS)
        cached = self._blob_table.get(name)
        if cached is not None and not cached.complete:
            self._contents.wait_for_arrival(_TURN_S)
            return ChunkOffer(Missed.NOT_YET)
        data = None
        if cached is not None:
            name, digest = cached.key, cached.content.chunks[index]
            data = _part(cached.place, *cached.content.span(index))
        if data is None:
            data = self._from_disk(name, index, digest)
        have = (1 << count) - 1
        if data is None:
            return ChunkOffer(Missed.CANNOT, have & ~(1 << index))
        return ChunkOffer(None, have, digest, data)

    def _from_disk(self, name: str, index: int, digest: str) -> memoryview | None:
        try:
            fd = self._disk.lend(name)
        except CacheError:
            return None
        try:
            length = max(0, min(CHUNK_BYTES, os.fstat(fd).st_size - index * CHUNK_BYTES))
            data = memoryview(bytearray(length))
            right = read_at(fd, index * CHUNK_BYTES, data) == length
        except OSError:
            return None
        finally:
            os.close(fd)
        return data if right and digest and chunk_digest(data) == digest else None


def _part(place: Region | DiskLanding | None, offset: int, length: int) -> memoryview | None:
    try:
        return None if place is None else place.view[offset : offset + length]
    except AttributeError:
        return None  # another thread has released it meanwhile
