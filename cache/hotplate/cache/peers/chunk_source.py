"""What this node can give to its peers: chunks on their way, in memory and on disk.

Called on the threads that serve peers. Nothing is given that was not verified: what lies on disk
is verified again each time, since a disk forgets.
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
from hotplate.cache.swarm.attestations import AHEAD
from hotplate.cache.swarm.chunk_request import ChunkOffer, ChunkRequest
from hotplate.cache.swarm.participants import PeerState, number_at
from hotplate.cache.tiers.arena import Region
from hotplate.cache.tiers.disk import DiskTier

_TURN_S = 0.05


class ChunkSource:
    """All that is verified on this node. Thread-safe."""

    def __init__(
        self,
        contents: Contents,
        holdings: BlobTable,
        disk: DiskTier,
        known: Callable[[str], Blob | None],
        clock: Callable[[], float],
    ) -> None:
        """`known` says what a draft's key has turned out to be."""
        self._contents = contents
        self._holdings = holdings
        self._disk = disk
        self._known = known
        self._clock = clock

    def state_for(self, peer: str, key: str) -> PeerState | None:
        """What to tell a peer of what is here and on its way; None: nothing at all."""
        blob = self._known(key)
        fetch = self._find(key, blob)
        if fetch is not None:
            return fetch.state_for(peer)
        digest = key if blob is None else blob.digest
        count = self._count_kept(digest)
        if count is None:
            return None
        holding = self._holdings.get(digest)
        here = holding is None or holding.complete
        # Later than what was said of it while it was fetched.
        return PeerState(((1 << count) - 1) if here else 0, number=number_at(self._clock()))

    def take(self, ask: ChunkRequest, hold_s: float) -> ChunkOffer:
        """The chunk, when it is here; waits that long for it where it is on its way."""
        blob = self._known(ask.key)
        fetch = self._find(ask.key, blob)
        if fetch is not None:
            offer = fetch.wait_for_chunk(ask, self._clock() + hold_s, self._clock)
            if offer is not None:
                return offer
        digest = ask.digest
        if blob is not None and not digest and ask.index < len(blob.chunks):
            digest = blob.chunks[ask.index]
        return self._kept(ask.key if blob is None else blob.digest, ask.index, digest)

    def digests(self, ask: ChunkRequest) -> list[str]:
        """The digests of the chunk and of the next ones, as this node found them; "" for others."""
        blob = self._known(ask.key)
        if blob is not None:
            return list(blob.chunks[ask.index : ask.index + AHEAD])
        fetch = self._find(ask.key, None)
        return [] if fetch is None else fetch.digests(ask.index, AHEAD)

    def others(self, ask: ChunkRequest) -> list[str]:
        """Which other peers have the chunk, while the content is on its way here."""
        fetch = self._find(ask.key, self._known(ask.key))
        return [] if fetch is None else fetch.others(ask.index, ask.asker)

    def gave(self, ask: ChunkRequest) -> None:
        """The asker has got the chunk."""
        fetch = self._find(ask.key, self._known(ask.key))
        if fetch is not None:
            fetch.note_holder(ask.asker, 1 << ask.index)

    def _find(self, key: str, blob: Blob | None) -> Fetch | None:
        """The content on its way here."""
        return self._contents.find(key) if blob is None else self._contents.find(key, blob.digest)

    def _count_kept(self, name: str) -> int | None:
        holding = self._holdings.get(name)
        if holding is not None and holding.error is None:
            return len(holding.content.chunks)
        size_bytes = self._disk.sizes().get(name)
        if size_bytes is None or not self._disk.has(name, size_bytes):
            return None
        return count_chunks(size_bytes)

    def _kept(self, name: str, index: int, digest: str) -> ChunkOffer:
        count = self._count_kept(name)
        if count is None or not 0 <= index < count:
            return ChunkOffer(Missed.LACKS)
        holding = self._holdings.get(name)
        if holding is not None and not holding.complete:
            self._contents.wait_for_arrival(_TURN_S)  # between a fetch and its news, or not begun
            return ChunkOffer(Missed.NOT_YET)
        data = None
        if holding is not None:
            name, digest = holding.key, holding.content.chunks[index]
            data = _part(holding.place, *holding.content.span(index))
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
        return None  # it was let go on another thread meanwhile
