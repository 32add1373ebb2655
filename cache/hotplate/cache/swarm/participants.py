"""Who else takes part in one content, what each has of it, and what all have agreed on.

Messages between agents come late, and out of order. So that no two take one chunk from the origin,
nobody counts on how long news takes, but on who has heard what: the messages of a node about a
content are numbered, and each says the last number that its sender has heard of whom it is for.

- The order in which participants bring chunks depends on who they all are, a node's *view*. A new
  view holds once every participant has heard of it and has the same. A claim of a chunk that was
  made under an older view came with what made the views the same.
- Who takes what another should bring, because it seems to stall, claims it first, and waits until
  the other has heard of that and does not claim it itself.

Who answers nothing for long is gone (`members.py`), and gone from the view.

No I/O, no clock: callers pass `now` in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from hotplate.cache.swarm.bitmap import bits

LATE_S = 12.0
"""Without any progress for that long, who only ever promises a chunk is waited for no longer."""

CLAIM_MAX_S = 120.0
"""Nor who makes little progress: so slow is no origin that is worth waiting for."""


class PeerState(NamedTuple):
    """What a node says to another of one content."""

    have: int
    """Bitmap of its chunks."""
    claims: int = 0
    """Bitmap of those that it brings from the origin, or is about to."""
    view: int = 0
    """Which participants it knows of; 0: it brings nothing now, so it agrees with everybody."""
    moves: int = 0
    """Grows while something comes to it."""
    number: int = 0
    """Grows with every message of this node about this content."""
    heard: int = 0
    """The last number that it has heard of whom this is said to."""


class PeerUpdate(NamedTuple):
    """What of a message was new."""

    have: int
    """Bitmap of the peer's chunks."""
    joined: bool = False
    moves: bool = False
    """More has come to it."""


@dataclass
class _Participant:
    share: PeerState
    moved_at: float
    claimed_at: dict[int, float] = field(default_factory=dict)
    dissents_at: float | None = None
    """Since when it is not known to have our view."""
    learned_at: int = 0
    """How many messages we had sent when its last one came."""


class Participants:
    """What one node knows of the others."""

    def __init__(self, me: str, began: float) -> None:
        """`began` tells this node's later messages from those of an earlier fetch of the same."""
        self.holders: dict[int, list[str]] = {}
        """Who has each chunk, as they say, gone or not."""
        self.names: list[str] = []
        """Of those who are there."""
        self.gone: set[str] = set()
        self._me = me
        self._known: dict[str, _Participant] = {}
        self._number = number_at(began)
        self._changed = 0  # the last message that said an older view
        self._view = 0
        self._set_view(0.0)

    @property
    def said(self) -> int:
        """The number of the last message."""
        return self._number

    def say(self, to: str, have: int, claims: int, moves: int) -> PeerState:
        """The next message to somebody."""
        self._number += 1
        known = self._known.get(to)
        heard = known.share.number if known is not None else 0
        return PeerState(have, claims, self._view, moves, self._number, heard)

    def learn(self, peer: str, share: PeerState, now: float) -> PeerUpdate:
        """What a peer says."""
        known = self._known.get(peer)
        if known is None:
            known = self._known[peer] = _Participant(PeerState(0, number=-1), now)
            self.gone.add(peer)
        news = self.holds(peer, share.have)
        if share.number < known.share.number:
            return PeerUpdate(news)  # it was overtaken by a later one
        moves = share.moves > known.share.moves
        if moves:
            known.moved_at = now
        since = known.claimed_at
        known.claimed_at = {index: since.get(index, now) for index in bits(share.claims)}
        known.share = share._replace(have=known.share.have)
        known.learned_at = self._number
        joined = peer in self.gone
        if joined:
            self.gone.discard(peer)
            self._set_view(now)
        self._note_view(known, now)
        return PeerUpdate(news, joined, moves)

    def holds(self, peer: str, have: int) -> int:
        """It has these chunks, as it says in passing; which of them are news."""
        known = self._known.get(peer)
        if known is None:
            return 0
        news = have & ~known.share.have
        known.share = known.share._replace(have=known.share.have | have)
        for index in bits(news):
            self.holders.setdefault(index, []).append(peer)
        return news

    def forget(self, peer: str, asked: int | None, now: float) -> bool:
        """It has left, or has said that it takes no part, to our message number `asked`; whether
        that is news."""
        known = self._known.get(peer)
        if known is None or peer in self.gone:
            return False
        if asked is not None and known.learned_at >= asked:
            return False  # it has begun since
        self.gone.add(peer)
        known.claimed_at = {}
        known.share = known.share._replace(claims=0)
        self._set_view(now)
        return True

    def agreed(self, now: float, ignored: Callable[[str], bool]) -> bool:
        """Whether all others have our view, so that nobody thinks he owns what is ours."""
        dissenters = (
            name
            for name in self.names
            if (since := self._known[name].dissents_at) is not None and now - since < LATE_S
        )
        return all(map(ignored, dissenters))

    def has_heard(self, peer: str, number: int) -> bool:
        """Whether it has heard a message of ours after that one, or has no need to."""
        share = self._known[peer].share
        return share.view == 0 or share.heard > number

    def claims(self, peer: str) -> int:
        """Bitmap of what it brings from the origin, as it says."""
        return self._known[peer].share.claims

    def count(self, index: int) -> int:
        """How many have the chunk, as they say."""
        return len(self.holders.get(index, ()))

    def have(self, peers: Iterable[str]) -> int:
        """Bitmap of what those have, as they say."""
        found = 0
        for peer in peers:
            found |= self._known[peer].share.have
        return found

    def is_late(self, peer: str, index: int, now: float) -> bool:
        """Whether it claims a chunk and does not bring it."""
        known = self._known[peer]
        since = known.claimed_at.get(index)
        if since is None:
            return False
        return now - max(since, known.moved_at) >= LATE_S or now - since >= CLAIM_MAX_S

    def _set_view(self, now: float) -> None:
        self.names = [name for name in self._known if name not in self.gone]
        names = sorted([self._me, *self.names])
        self._view = int.from_bytes(blake2b("\n".join(names).encode(), digest_size=8).digest())
        self._changed = self._number
        for name in self.names:
            self._note_view(self._known[name], now)

    def _note_view(self, known: _Participant, now: float) -> None:
        share = known.share
        if share.view == 0 or (share.view == self._view and share.heard > self._changed):
            known.dissents_at = None
        elif known.dissents_at is None:
            known.dissents_at = now


def number_at(now: float) -> int:
    """The number of a first message then; no node sends so many that later ones overtake it."""
    return int(now * 1e6)
