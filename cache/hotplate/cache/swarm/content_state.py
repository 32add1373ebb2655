"""What this node knows of the peers of one content: what they have, bring and attest.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from hotplate.cache.swarm.attestations import Attestations
from hotplate.cache.swarm.bitmap import bits
from hotplate.cache.swarm.chunks import Chunks
from hotplate.cache.swarm.hints import Hints
from hotplate.cache.swarm.origin_fetches import OriginFetches
from hotplate.cache.swarm.participants import Participants, PeerState
from hotplate.cache.swarm.peer_scores import PeerScores
from hotplate.cache.swarm.rendezvous import Rendezvous, rank

HINTS = 4
"""Other peers that are named to one that finds this node busy: as many as it may ask at once."""


class ContentState:
    """What this node knows of one content."""

    def __init__(
        self, key: str, chunks: Chunks, me: str, scores: PeerScores, began: float = 0.0
    ) -> None:
        """`key` is what all nodes know the content by; `me` is this node's id."""
        self.me = me
        self.chunks = chunks
        self.scores = scores
        self.changed = False
        """Whether the others are to be greeted at once; the caller that has them greeted resets
        it."""
        self.members = Participants(me, began)
        self.orders = Rendezvous(key, me)
        self.origin_fetches = OriginFetches(self.members, self.orders, scores)
        self.hints = Hints()
        self.attestations = Attestations(scores)
        """The digests that peers attest, where they are not known."""

    @property
    def participants(self) -> list[str]:
        return self.members.names

    def state_for(self, peer: str) -> PeerState:
        """The next message to a peer."""
        have, progress = self.chunks.verified_bits, self.chunks.progress
        return self.members.state_for(peer, have, self.origin_fetches.bits, progress)

    def receive(self, peer: str, state: PeerState, now: float) -> None:
        """A message has come from a peer."""
        update = self.members.receive(peer, state, now)
        self._note_available(update.have)
        if update.joined:
            self._reorder()
        if update.progressed and self.members.origin_fetches(peer):
            self.chunks.note_progress(now)
        self.origin_fetches.yield_to(peer)

    def note_have(self, peer: str, have: int) -> None:
        """The peer has these chunks (a bitmap)."""
        self._note_available(self.members.note_have(peer, have))

    def other_holders(self, index: int, asker: str) -> list[str]:
        """Some other peers that have the chunk, for an asker that finds this node busy. Different
        askers get different ones."""
        seed, known = f"{asker}{index}", self.members.holders.get(index, ())
        names = [peer for peer in known if peer not in self.members.gone and peer != asker]
        return sorted(names, key=lambda name: rank(seed, name))[:HINTS]

    def add_hints(self, index: int, peers: Iterable[str]) -> None:
        """According to another peer, these have the chunk. Each is asked once where no other can
        be; nothing else follows, since the hint may be wrong."""
        self.hints.add(index, set(peers).intersection(self.members.names))

    def _note_available(self, chunks: int) -> None:
        for index in bits(chunks):
            self.chunks.clear_backoff(index)
            self.origin_fetches.drop(index)

    def forget(self, peer: str, now: float, in_reply_to: int | None = None) -> None:
        """The peer is gone; or it neither has nor brings the content, by its reply to our message
        of that number."""
        if self.members.forget(peer, in_reply_to, now):
            self._reorder()

    def _reorder(self) -> None:
        self.orders.set(self.members.names)
        self.changed = True
