"""Whether what peers give of a draft is believed: asks other peers, and the origin.

On a fetcher's threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hotplate.cache.errors import CacheError, Misled
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import Came
from hotplate.cache.swarm.assignment import Assignment
from hotplate.cache.swarm.chunk_request import ChunkRequest, Peers


class Corroboration:
    """Hears witnesses, and finds liars out. `attestations.py` decides."""

    def __init__(
        self,
        contents: Contents,
        clock: Callable[[], float],
        metrics: Metrics,
        peers: Peers | None,
    ) -> None:
        self._contents = contents
        self._clock = clock
        self._metrics = metrics
        self._peers = peers

    def believes(self, fetch: Fetch, step: Assignment, digest: str) -> bool:
        """Hears another peer that has the chunk before a digest is believed that only one says."""
        for peer in fetch.witnesses(step, self._clock()):
            if self._hear(fetch, step.index, peer):
                break
        return fetch.believe(step, digest, self._clock())

    def settle(self, fetch: Fetch, index: int, digest: str, came: Came) -> None:
        """Bans the peers that said another digest of a chunk than what the origin gives now.

        Raises Misled where one of them has been believed. `came` is called with what is read.
        """
        liars, doubtful = fetch.settle(index, digest, self._clock())
        self._metrics.bans.inc(len(liars))
        for one in doubtful:
            if self._at_origin(fetch, one, came) != fetch.content.chunks[one]:
                raise Misled(
                    f"{fetch.chunks.name}: chunk {one} of {fetch.chunks.count} came from a peer "
                    "that lies, and the origin does not confirm it; ask for the file again"
                )

    def _hear(self, fetch: Fetch, index: int, peer: str) -> bool:
        """Whether a peer has said a chunk's digest, now or before."""
        assert self._peers is not None
        if fetch.has_heard(peer, index):
            return True
        request = self._peers.ask(
            peer, ChunkRequest(fetch.key, index, asker=self._peers.me, word=True)
        )
        if request is None:
            return False
        answer = request.read(memoryview(b""), lambda: None, self._contents.patience_s)
        return fetch.hear(peer, index, answer, self._clock())

    def _at_origin(self, fetch: Fetch, index: int, came: Came) -> str:
        """The digest of a chunk there; "" where it cannot be had."""
        offset, length = fetch.content.span(index)
        data = bytearray(length)
        with contextlib.suppress(CacheError):
            fetch.order.origin.read_into(offset, memoryview(data), came)
            self._metrics.origin_bytes.inc(length)
            fetch.order.traffic.add(origin_bytes=length)
            return chunk_digest(data)
        return ""
