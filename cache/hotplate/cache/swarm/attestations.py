"""What peers say of the digests of a draft, and what they contradict each other on.

Of a file whose digests nobody knows yet, who gives a chunk says its digest, and another who has the
chunk is heard before that is believed. Where they say different things, the origin's own bytes
tell. Who was wrong is no longer heard, and what was believed on its word alone is in doubt.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock. Peers are known by
their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.cache.swarm.peer_scores import PeerScores

WITNESSES = 2
"""Others whose word on a chunk is asked for, until one gives it."""

AHEAD = 32
"""Digests that are asked for at once: of a chunk, and of the next ones."""


class Attestations:
    """What was said of one draft's digests."""

    def __init__(self, standing: PeerScores) -> None:
        self.disputed = 0
        """Bitmap of the chunks that only the origin may give."""
        self._standing = standing
        self._said: dict[int, dict[str, str]] = {}  # of chunks not believed yet, by who says so
        self._alone: dict[int, str] = {}  # whose word alone a chunk was believed on

    def hear(self, peer: str, index: int, digests: Sequence[str], now: float) -> None:
        """What a peer says of a chunk and the next ones; "" of one that it has not."""
        if self._standing.is_banned(peer, now):
            return  # it was asked before
        for at, digest in enumerate(digests[:AHEAD], index):
            if digest:
                self._said.setdefault(at, {})[peer] = digest

    def unanswered(self, peer: str, now: float) -> None:
        """A peer was asked and did not answer."""
        self._standing.stalled(peer, now)

    def has_heard(self, peer: str, index: int) -> bool:
        """Whether it has said that chunk's digest."""
        return peer in self._said.get(index, ())

    def believe(self, index: int, giver: str, digest: str, now: float) -> bool:
        """Whether nobody who was heard contradicts who gave the chunk; else it is disputed."""
        if self._standing.is_banned(giver, now):
            return False
        said = self._said.setdefault(index, {})
        said[giver] = digest
        if len(set(said.values())) > 1:
            self.disputed |= 1 << index
            return False
        if len(said) == 1:
            self._alone[index] = giver
        del self._said[index]
        return True

    def settle(self, index: int, digest: str, now: float) -> tuple[set[str], list[int]]:
        """The origin's own bytes have that digest. Who lied, and from now on is left; the chunks
        that were believed on their word alone."""
        self.disputed &= ~(1 << index)
        liars = {peer for peer, one in self._said.pop(index, {}).items() if one != digest}
        for peer in liars:
            self._standing.lied(peer, now)
        return liars, [one for peer in liars for one in self._forget(peer)]

    def _forget(self, liar: str) -> list[int]:
        for index, said in self._said.items():
            if said.pop(liar, None) and len(set(said.values())) < 2:
                self.disputed &= ~(1 << index)
        found = [index for index, giver in self._alone.items() if giver == liar]
        for index in found:
            del self._alone[index]
        return found
