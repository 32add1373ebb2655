"""Which chunks of a content this node fetches from the origin, and which fetches it has announced.

Where another participant comes first in a chunk's order and does not fetch the chunk, a node
announces its own fetch, and begins once the other has acknowledged that and announces none itself.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from hotplate.cache.swarm.participants import Participants
from hotplate.cache.swarm.peer_scores import PeerScores
from hotplate.cache.swarm.rendezvous import Rendezvous


class OriginFetches:
    """One node's fetches of one content from the origin, under way and announced."""

    def __init__(self, participants: Participants, orders: Rendezvous, scores: PeerScores) -> None:
        self.under_way = 0
        """Bitmap of the chunks that are on their way from the origin."""
        self._participants = participants
        self._orders = orders
        self._scores = scores
        self._announced: dict[int, int] = {}  # the number of our last message before, by chunk

    @property
    def bits(self) -> int:
        """Bitmap of the chunks that this node fetches from the origin, or is about to."""
        return self.under_way | sum(1 << index for index in self._announced)

    def __contains__(self, index: int) -> bool:
        """Whether the chunk's fetch is announced and not yet under way."""
        return index in self._announced

    def begin(self, index: int) -> None:
        """The chunk is asked of the origin: other nodes wait for it, or know the announcement."""
        self.under_way |= 1 << index

    def end(self, index: int) -> None:
        """The origin has given the chunk, or failed to."""
        self.under_way &= ~(1 << index)

    def drop(self, index: int) -> None:
        """The announcement is not needed any longer: the chunk comes from elsewhere, or comes
        now."""
        self._announced.pop(index, None)

    def yield_to(self, peer: str) -> None:
        """Withdraws every announcement that the peer has made too where it comes first."""
        theirs = self._participants.origin_fetches(peer)
        for index in [one for one in self._announced if theirs >> one & 1]:
            if peer in self._orders.before(index):
                del self._announced[index]

    def announcer(self, index: int, now: float) -> str | None:
        """The peer that fetches the chunk from the origin, though it need not be the first.

        An announcement of ours gives way to one that its maker keeps up after acknowledging ours.
        """
        ours = self._announced.get(index)
        for peer in self._participants.names:
            theirs = self._participants.origin_fetches(peer) >> index & 1
            stands = ours is None or self._participants.has_acknowledged(peer, ours)
            if theirs and stands and not self._is_hopeless(peer, index, now):
                self.drop(index)
                return peer
        return None

    def is_ours(self, index: int, now: float) -> bool:
        """Whether all that come before this node leave the chunk to it. Announces the fetch where
        some have yet to acknowledge that."""
        before = [
            peer for peer in self._orders.before(index) if not self._is_hopeless(peer, index, now)
        ]
        if before:
            self._announced.setdefault(index, self._participants.last_number)
        return all(
            self._participants.has_acknowledged(peer, self._announced[index]) for peer in before
        )

    def _is_hopeless(self, peer: str, index: int, now: float) -> bool:
        is_late = self._participants.is_late(peer, index, now)
        return is_late or self._scores.is_banned(peer, now)
