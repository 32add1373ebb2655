"""Which other agents take part in one content, what each has of it, and what all have agreed on.

Messages between agents come late, and out of order. So that no two nodes take one chunk from the
origin, nobody counts on how long a message takes, but on what has been acknowledged: a node numbers
its messages about a content, and each message acknowledges the last number that its sender has
received from the node that it goes to.

- The order in which participants bring chunks depends on who they all are: a node's *view*. A new
  view holds once every participant has acknowledged it and has the same. An origin fetch that was
  announced under an older view came with the messages that made the views the same.
- A node that takes what another should bring, because that one seems to stall, announces the fetch
  first, and waits until the other has acknowledged the announcement and makes none itself.

An agent that does not respond for long is gone (`members.py`), and gone from the view.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from hotplate.cache.swarm.bitmap import bits

LATE_S = 12.0
"""A peer that announces a chunk and makes no progress for that long is no longer waited for."""

ORIGIN_FETCH_MAX_S = 120.0
"""Nor is a peer that takes longer for one chunk: no origin that slow is worth waiting for."""


class PeerState(NamedTuple):
    """A message: one node's state of one content, for another node."""

    have: int
    """Bitmap of the sender's chunks."""
    origin_fetches: int = 0
    """Bitmap of the chunks that the sender fetches from the origin, or has announced."""
    view: int = 0
    """Which participants the sender knows; 0: it fetches nothing now, so it agrees with every
    view."""
    progress: int = 0
    """Grows while bytes come to the sender."""
    number: int = 0
    """Grows with every message of the sender about this content."""
    acknowledged: int = 0
    """The last number that the sender has received from the receiver."""


class PeerUpdate(NamedTuple):
    """What was new in a message."""

    have: int
    """Bitmap of the peer's chunks."""
    joined: bool = False
    progressed: bool = False
    """More bytes have come to the peer."""


@dataclass
class _Participant:
    state: PeerState
    progressed_at: float
    announced_at: dict[int, float] = field(default_factory=dict)
    differs_since: float | None = None
    """Since when it is not known to have our view."""
    received_at: int = 0
    """How many messages we had sent when its last one came."""


class Participants:
    """What one node knows of the others."""

    def __init__(self, me: str, began: float) -> None:
        """`began` tells this node's messages from those of an earlier fetch of the same content."""
        self.holders: dict[int, list[str]] = {}
        """The peers that have each chunk, by their own account, gone or not."""
        self.names: list[str] = []
        """The peers that are there."""
        self.gone: set[str] = set()
        self._me = me
        self._known: dict[str, _Participant] = {}
        self._number = number_at(began)
        self._changed = 0  # the last message with an older view
        self._view = 0
        self._set_view(0.0)

    @property
    def last_number(self) -> int:
        """The number of the last message."""
        return self._number

    def state_for(self, to: str, have: int, origin_fetches: int, progress: int) -> PeerState:
        """The next message to a peer."""
        self._number += 1
        known = self._known.get(to)
        received = known.state.number if known is not None else 0
        return PeerState(have, origin_fetches, self._view, progress, self._number, received)

    def receive(self, peer: str, state: PeerState, now: float) -> PeerUpdate:
        """A message has come from a peer."""
        known = self._known.get(peer)
        if known is None:
            known = self._known[peer] = _Participant(PeerState(0, number=-1), now)
            self.gone.add(peer)
        have = self.note_have(peer, state.have)
        if state.number < known.state.number:
            return PeerUpdate(have)  # it was overtaken by a later one
        progressed = state.progress > known.state.progress
        if progressed:
            known.progressed_at = now
        since = known.announced_at
        known.announced_at = {index: since.get(index, now) for index in bits(state.origin_fetches)}
        known.state = state._replace(have=known.state.have)
        known.received_at = self._number
        joined = peer in self.gone
        if joined:
            self.gone.discard(peer)
            self._set_view(now)
        self._note_view(known, now)
        return PeerUpdate(have, joined, progressed)

    def note_have(self, peer: str, have: int) -> int:
        """The peer has these chunks; a bitmap of those that it was not known to have."""
        known = self._known.get(peer)
        if known is None:
            return 0
        new = have & ~known.state.have
        known.state = known.state._replace(have=known.state.have | have)
        for index in bits(new):
            self.holders.setdefault(index, []).append(peer)
        return new

    def forget(self, peer: str, in_reply_to: int | None, now: float) -> bool:
        """The peer is gone; or it takes no part, by its reply to our message of that number.
        Whether that is a change."""
        known = self._known.get(peer)
        if known is None or peer in self.gone:
            return False
        if in_reply_to is not None and known.received_at >= in_reply_to:
            return False  # it has begun since
        self.gone.add(peer)
        known.announced_at = {}
        known.state = known.state._replace(origin_fetches=0)
        self._set_view(now)
        return True

    def agreed(self, now: float, ignored: Callable[[str], bool]) -> bool:
        """Whether all others have our view, so that no other node thinks that it owns what is
        ours."""
        differing = (
            name
            for name in self.names
            if (since := self._known[name].differs_since) is not None and now - since < LATE_S
        )
        return all(map(ignored, differing))

    def has_acknowledged(self, peer: str, number: int) -> bool:
        """Whether it has received a message of ours after that one, or has no need to."""
        state = self._known[peer].state
        return state.view == 0 or state.acknowledged > number

    def origin_fetches(self, peer: str) -> int:
        """Bitmap of the chunks that the peer fetches from the origin, or has announced."""
        return self._known[peer].state.origin_fetches

    def count(self, index: int) -> int:
        """How many peers have the chunk."""
        return len(self.holders.get(index, ()))

    def have(self, peers: Iterable[str]) -> int:
        """Bitmap of the chunks that any of these has."""
        found = 0
        for peer in peers:
            found |= self._known[peer].state.have
        return found

    def is_late(self, peer: str, index: int, now: float) -> bool:
        """Whether the peer has announced a chunk's fetch and does not bring it."""
        known = self._known[peer]
        since = known.announced_at.get(index)
        if since is None:
            return False
        stalled = now - max(since, known.progressed_at) >= LATE_S
        return stalled or now - since >= ORIGIN_FETCH_MAX_S

    def _set_view(self, now: float) -> None:
        self.names = [name for name in self._known if name not in self.gone]
        names = sorted([self._me, *self.names])
        self._view = int.from_bytes(blake2b("\n".join(names).encode(), digest_size=8).digest())
        self._changed = self._number
        for name in self.names:
            self._note_view(self._known[name], now)

    def _note_view(self, known: _Participant, now: float) -> None:
        state = known.state
        if state.view == 0 or (state.view == self._view and state.acknowledged > self._changed):
            known.differs_since = None
        elif known.differs_since is None:
            known.differs_since = now


def number_at(now: float) -> int:
    """The number of a first message then; no node sends so many that later ones overtake it."""
    return int(now * 1e6)
