"""Whether the chunks that peers give of a draft are accepted: asks other peers, and the origin.

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
from hotplate.cache.origins.blob_source import OnProgress
from hotplate.cache.swarm.assignment import Assignment
from hotplate.cache.swarm.chunk_request import ChunkRequest, Peers


class Corroboration:
    """Asks for attestations, and finds the peers that lie. `attestations.py` decides."""

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

    def accepts(self, fetch: Fetch, step: Assignment, digest: str) -> bool:
        """Whether a chunk's digest stands, after another peer that has the chunk was asked for
        it."""
        for peer in fetch.witnesses(step, self._clock()):
            if self._attests(fetch, step.index, peer):
                break
        return fetch.accept(step, digest, self._clock())

    def resolve(self, fetch: Fetch, index: int, digest: str, on_progress: OnProgress) -> None:
        """Bans the peers that attested another digest of a chunk than the origin's.

        Raises Misled where a wrong chunk of theirs has been accepted. `on_progress` is that of the
        reads at the origin.
        """
        liars, doubtful = fetch.resolve(index, digest, self._clock())
        self._metrics.bans.inc(len(liars))
        for one in doubtful:
            if self._at_origin(fetch, one, on_progress) != fetch.content.chunks[one]:
                raise Misled(
                    f"{fetch.chunks.name}: chunk {one} of {fetch.chunks.count} came from a peer "
                    "that lies, and the origin does not confirm it; ask for the file again"
                )

    def _attests(self, fetch: Fetch, index: int, peer: str) -> bool:
        """Whether a peer attests a chunk's digest, now or before."""
        assert self._peers is not None
        if fetch.has_attested(peer, index):
            return True
        request = ChunkRequest(fetch.key, index, asker=self._peers.me, digests_only=True)
        pending = self._peers.ask(peer, request)
        if pending is None:
            return False
        response = pending.read(memoryview(b""), lambda: None, self._contents.patience_s)
        return fetch.record_digests(peer, index, response, self._clock())

    def _at_origin(self, fetch: Fetch, index: int, on_progress: OnProgress) -> str:
        """The digest of a chunk at the origin; "" where the origin does not give it."""
        offset, length = fetch.content.span(index)
        data = bytearray(length)
        with contextlib.suppress(CacheError):
            fetch.order.origin.read_into(offset, memoryview(data), on_progress)
            self._metrics.origin_bytes.inc(length)
            fetch.order.traffic.add(origin_bytes=length)
            return chunk_digest(data)
        return ""
