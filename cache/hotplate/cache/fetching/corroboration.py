"""Whether what peers give of a draft is believed: asks others, and the origin.

On a fetcher's threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from hotplate.cache.errors import CacheError, Misled
from hotplate.cache.fetching.fetch import Fetch
from hotplate.cache.manifest import chunk_digest
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import Came
from hotplate.cache.swarm.assignment import Missed, Step
from hotplate.cache.swarm.chunk_request import PeerAsk, Peers
from hotplate.cache.swarm.peer_scores import Standing


class Belief:
    """Hears witnesses, and finds liars out. `words.py` decides."""

    def __init__(
        self,
        work: threading.Condition,
        clock: Callable[[], float],
        metrics: Metrics,
        standing: Standing,
        peers: Peers | None,
    ) -> None:
        """`work` guards the fetches."""
        self._work = work
        self._clock = clock
        self._metrics = metrics
        self._standing = standing
        self._peers = peers

    def believes(self, fetch: Fetch, step: Step, digest: str) -> bool:
        """Hears another who has the chunk before a digest is believed that only a peer says."""
        with self._work:
            witnesses = fetch.swarm.witnesses(step, self._clock())
            if not witnesses:
                return self._believe(fetch, step, digest)
        for peer in witnesses:
            if self._has_heard(fetch, step.index, peer):
                break
        with self._work:
            return self._believe(fetch, step, digest)

    def _believe(self, fetch: Fetch, step: Step, digest: str) -> bool:
        return fetch.swarm.words.believe(step.index, step.source, digest, self._clock())

    def settle(self, fetch: Fetch, index: int, digest: str, came: Came) -> None:
        """Leaves who said another digest of a chunk than what the origin gives now.

        Raises Misled where one of them has been believed. `came` hears of what is read.
        """
        with self._work:
            liars, doubtful = fetch.swarm.words.settle(index, digest, self._clock())
            self._metrics.bans.inc(len(liars))
        for one in doubtful:
            if self._at_origin(fetch, one, came) != fetch.content.chunks[one]:
                raise Misled(
                    f"{fetch.chunks.name}: chunk {one} of {fetch.chunks.count} came from a peer "
                    "that lies, and the origin does not confirm it; ask for the file again"
                )

    def _has_heard(self, fetch: Fetch, index: int, peer: str) -> bool:
        """Whether a peer has said a chunk's digest, now or before."""
        assert self._peers is not None
        words = fetch.swarm.words
        with self._work:
            if words.has_heard(peer, index):
                return True
        request = self._peers.ask(peer, PeerAsk(fetch.key, index, asker=self._peers.me, word=True))
        if request is None:
            return False
        answer = request.read(memoryview(b""), lambda: None, self._standing.patience_s)
        with self._work:
            now = self._clock()
            if answer.missed is Missed.LEFT:
                self._standing.stalled(peer, now)
            words.hear(peer, index, answer.digest.split(","), now)
            return words.has_heard(peer, index)

    def _at_origin(self, fetch: Fetch, index: int, came: Came) -> str:
        """The digest of a chunk there; "" where it cannot be had."""
        offset, length = fetch.content.span(index)
        data = bytearray(length)
        with contextlib.suppress(CacheError):
            fetch.origin.read_into(offset, memoryview(data), came)
            self._metrics.origin_bytes.inc(length)
            fetch.traffic.add(origin_bytes=length)
            return chunk_digest(data)
        return ""
