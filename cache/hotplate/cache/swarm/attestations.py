"""What peers attest of the digests of a draft, and where their attestations contradict each other.

While a file's digests are unknown, the peer that gives a chunk attests its digest, and another peer
that has the chunk is asked for its attestation before the chunk is accepted. Where the two differ,
the origin's own bytes decide. A peer that was wrong is banned, and every chunk that was accepted on
its attestation alone is in doubt.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock. Peers are known by
their ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotplate.cache.swarm.peer_scores import PeerScores

WITNESSES = 2
"""Other peers that are asked for a chunk's digest, one after another, until one gives it."""

DIGESTS_PER_REQUEST = 32
"""Digests that one request asks for: the chunk's own, and those of the next chunks."""


class Attestations:
    """What peers have attested of one draft's digests."""

    def __init__(self, scores: PeerScores) -> None:
        self.disputed = 0
        """Bitmap of the chunks that only the origin may give."""
        self._scores = scores
        self._attested: dict[
            int, dict[str, str]
        ] = {}  # digests by peer, of chunks not accepted yet
        self._uncorroborated: dict[int, str] = {}  # the one peer that attested an accepted chunk

    def record(self, peer: str, index: int, digests: Sequence[str], now: float) -> None:
        """A peer attests the digests of a chunk and of the next ones; "" where it lacks one."""
        if self._scores.is_banned(peer, now):
            return  # the request went out before the ban
        for at, digest in enumerate(digests[:DIGESTS_PER_REQUEST], index):
            if digest:
                self._attested.setdefault(at, {})[peer] = digest

    def unanswered(self, peer: str, now: float) -> None:
        """A peer was asked and did not answer."""
        self._scores.stalled(peer, now)

    def has_attested(self, peer: str, index: int) -> bool:
        """Whether the peer has attested that chunk's digest."""
        return peer in self._attested.get(index, ())

    def accept(self, index: int, giver: str, digest: str, now: float) -> bool:
        """Whether the digest of a chunk that `giver` gave stands; where another peer contradicts
        it, the chunk is disputed from now on."""
        if self._scores.is_banned(giver, now):
            return False
        digests = self._attested.setdefault(index, {})
        digests[giver] = digest
        if len(set(digests.values())) > 1:
            self.disputed |= 1 << index
            return False
        if len(digests) == 1:
            self._uncorroborated[index] = giver
        del self._attested[index]
        return True

    def resolve(self, index: int, digest: str, now: float) -> tuple[set[str], list[int]]:
        """The origin's own bytes have that digest. Bans the peers that attested another one, and
        returns them with the chunks that were accepted on their attestation alone."""
        self.disputed &= ~(1 << index)
        attested = self._attested.pop(index, {})
        liars = {peer for peer, other in attested.items() if other != digest}
        for peer in liars:
            self._scores.ban(peer, now)
        return liars, [one for peer in liars for one in self._withdraw(peer)]

    def _withdraw(self, liar: str) -> list[int]:
        for index, digests in self._attested.items():
            if digests.pop(liar, None) and len(set(digests.values())) < 2:
                self.disputed &= ~(1 << index)
        found = [index for index, giver in self._uncorroborated.items() if giver == liar]
        for index in found:
            del self._uncorroborated[index]
        return found
