"""What this node can give to its peers: chunks on their way, in memory and on disk.

Called on the threads that serve peers. Nothing is given that was not verified: what lies on disk
is verified again each time, since a disk forgets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hotplate.cache.copies.blob_table import Holdings
from hotplate.cache.copies.landing import DiskLanding
from hotplate.cache.errors import CacheError
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.manifest import CHUNK_BYTES, Blob, chunk_digest, count_chunks
from hotplate.cache.origins.blob_source import read_at
from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.attestations import AHEAD
from hotplate.cache.swarm.chunk_request import PeerAsk
from hotplate.cache.swarm.participants import Share, number_at
from hotplate.cache.tiers.arena import Region
from hotplate.cache.tiers.disk import DiskTier

_TURN_S = 0.05


@dataclass(frozen=True)
class Offer:
    """A chunk that can be sent, or why not."""

    missed: Missed | None = None
    have: int = 0
    digest: str = ""
    data: memoryview | None = None


class Shelf:
    """All that is verified on this node. Thread-safe."""

    def __init__(
        self,
        fetcher: Fetcher,
        holdings: Holdings,
        disk: DiskTier,
        known: Callable[[str], Blob | None],
    ) -> None:
        """`known` says what a draft's key has turned out to be."""
        self._fetcher = fetcher
        self._holdings = holdings
        self._disk = disk
        self._known = known

    def share(self, key: str, to: str) -> Share | None:
        """What to tell that peer of what is here and on its way; None: nothing at all."""
        blob = self._known(key)
        digest = key if blob is None else blob.digest
        with self._fetcher.work:
            fetch = self._find(key, blob)
            if fetch is not None:
                return fetch.swarm.say(to)
        count = self._count_kept(digest)
        if count is None:
            return None
        holding = self._holdings.get(digest)
        here = holding is None or holding.complete
        # Later than what was said of it while it was fetched.
        return Share(((1 << count) - 1) if here else 0, number=number_at(self._fetcher.clock()))

    def take(self, ask: PeerAsk, hold_s: float) -> Offer:
        """The chunk, when it is here; waits that long for it where it is on its way."""
        blob = self._known(ask.key)
        with self._fetcher.work:
            fetch = self._find(ask.key, blob)
            if fetch is not None:
                fetch.swarm.holds(ask.asker, ask.have)
                offer = self._wait(fetch, ask.index, ask.urgent, hold_s)
                if offer is not None:
                    return offer
        digest = ask.digest
        if blob is not None and not digest and ask.index < len(blob.chunks):
            digest = blob.chunks[ask.index]
        return self._kept(ask.key if blob is None else blob.digest, ask.index, digest)

    def words(self, ask: PeerAsk) -> list[str]:
        """The digests of the chunk and of the next ones, as this node found them; "" for others."""
        blob = self._known(ask.key)
        with self._fetcher.work:
            fetch = self._find(ask.key, blob)
            found = fetch.content if blob is None and fetch is not None else blob
            return list(found.chunks[ask.index : ask.index + AHEAD]) if found is not None else []

    def others(self, ask: PeerAsk) -> list[str]:
        """Who else has the chunk, while the content is on its way here."""
        with self._fetcher.work:
            fetch = self._find(ask.key, self._known(ask.key))
            return [] if fetch is None else fetch.swarm.others(ask.index, ask.asker)

    def gave(self, ask: PeerAsk) -> None:
        """The asker has got the chunk."""
        with self._fetcher.work:
            fetch = self._find(ask.key, self._known(ask.key))
            if fetch is not None:
                fetch.swarm.holds(ask.asker, 1 << ask.index)

    def _find(self, key: str, blob: Blob | None) -> Fetch | None:
        """The content on its way here. To be called with the fetcher's `work` held."""
        found = self._fetcher.find(key)
        return self._fetcher.find(blob.digest) if found is None and blob is not None else found

    def _wait(self, fetch: Fetch, index: int, urgent: bool, hold_s: float) -> Offer | None:
        """None when the fetch has ended meanwhile. With the fetcher's `work` held."""
        chunks, clock = fetch.chunks, self._fetcher.clock
        until = clock() + hold_s
        if urgent and chunks.whole and not chunks.verified_bits >> index & 1:
            self._fetcher.want(fetch, [index])
        while not chunks.verified_bits >> index & 1:
            if self._fetcher.find(fetch.key) is not fetch:
                return None
            if not 0 <= index < chunks.count:
                return Offer(Missed.LACKS)
            if chunks.cannot(index) or not chunks.awaited(index):
                return Offer(Missed.CANNOT, chunks.verified_bits)
            left_s = until - clock()
            if left_s <= 0:
                return Offer(Missed.NOT_YET, chunks.verified_bits)
            self._fetcher.arrived.wait(left_s)
        offset, length = fetch.content.span(index)
        data = fetch.destination.view[offset : offset + length]
        return Offer(None, chunks.verified_bits, fetch.content.chunks[index], data)

    def _count_kept(self, name: str) -> int | None:
        holding = self._holdings.get(name)
        if holding is not None and holding.error is None:
            return len(holding.content.chunks)
        size_bytes = self._disk.sizes().get(name)
        if size_bytes is None or not self._disk.has(name, size_bytes):
            return None
        return count_chunks(size_bytes)

    def _kept(self, name: str, index: int, digest: str) -> Offer:
        count = self._count_kept(name)
        if count is None or not 0 <= index < count:
            return Offer(Missed.LACKS)
        holding = self._holdings.get(name)
        if holding is not None and not holding.complete:
            with self._fetcher.work:  # between a fetch and its news, or not begun
                self._fetcher.arrived.wait(_TURN_S)
            return Offer(Missed.NOT_YET)
        data = None
        if holding is not None:
            name, digest = holding.key, holding.content.chunks[index]
            data = _part(holding.place, *holding.content.span(index))
        if data is None:
            data = self._from_disk(name, index, digest)
        have = (1 << count) - 1
        if data is None:
            return Offer(Missed.CANNOT, have & ~(1 << index))
        return Offer(None, have, digest, data)

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
