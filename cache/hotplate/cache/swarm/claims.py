"""Which chunks of a content this node brings from the origin, and which it has announced.

A node announces a chunk, which is to *claim* it, where another participant comes first in the
chunk's order but does not bring it, and takes it once the other has heard of that and has not
claimed it itself. No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from hotplate.cache.swarm.participants import Participants
from hotplate.cache.swarm.peer_scores import PeerScores
from hotplate.cache.swarm.rendezvous import Rendezvous


class Claims:
    """The claims of one node on one content."""

    def __init__(
        self, participants: Participants, orders: Rendezvous, standing: PeerScores
    ) -> None:
        self.under_way = 0
        """Bitmap of what is on its way from the origin."""
        self._participants = participants
        self._orders = orders
        self._standing = standing
        self._announced: dict[int, int] = {}  # with our last message before the claim

    @property
    def bits(self) -> int:
        """Bitmap of what this node fetches from the origin, or is about to."""
        return self.under_way | sum(1 << index for index in self._announced)

    def __contains__(self, index: int) -> bool:
        """Whether the chunk is announced and not yet under way."""
        return index in self._announced

    def begin(self, index: int) -> None:
        """The chunk is asked of the origin: others wait for it, or were told of the claim."""
        self.under_way |= 1 << index

    def end(self, index: int) -> None:
        """The origin has given the chunk, or failed to."""
        self.under_way &= ~(1 << index)

    def drop(self, index: int) -> None:
        """The chunk is had from elsewhere, or is taken now."""
        self._announced.pop(index, None)

    def yield_to(self, peer: str) -> None:
        """Gives up what the peer claims too where it comes first in the order."""
        theirs = self._participants.claims(peer)
        for index in [one for one in self._announced if theirs >> one & 1]:
            if peer in self._orders.before(index):
                del self._announced[index]

    def claimant(self, index: int, now: float) -> str | None:
        """The peer that brings the chunk from the origin, though it need not be the first.

        A claim of ours gives way to one that stands after its maker has heard of ours.
        """
        ours = self._announced.get(index)
        for peer in self._participants.names:
            theirs = self._participants.claims(peer) >> index & 1
            stands = ours is None or self._participants.has_heard(peer, ours)
            if theirs and stands and not self._is_hopeless(peer, index, now):
                self.drop(index)
                return peer
        return None

    def is_ours(self, index: int, now: float) -> bool:
        """Whether all that come before this node leave the chunk to it. Claims it where they have
        not heard of that."""
        before = [
            peer for peer in self._orders.before(index) if not self._is_hopeless(peer, index, now)
        ]
        if before:
            self._announced.setdefault(index, self._participants.said)
        return all(self._participants.has_heard(peer, self._announced[index]) for peer in before)

    def _is_hopeless(self, peer: str, index: int, now: float) -> bool:
        is_late = self._participants.is_late(peer, index, now)
        return is_late or self._standing.is_banned(peer, now)
