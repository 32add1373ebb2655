"""How each peer has behaved, as this node saw it: who may be asked, and how much at once.

Shared by all that a node fetches. No I/O, no clock: callers pass `now` in seconds of any
monotonic clock. Peers are known by their ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotplate.cache.swarm.rendezvous import rank

PEER_REQUESTS = 4
"""Requests to one peer at a time: two fill a fast link, and two more hide their round trips. To one
that has given nothing yet, or stalled since: one, so that a liar wastes no more; but not where
there is no other, and the link would wait for its first chunk."""

NO_PROGRESS_S = 2.5
"""A peer that sends nothing for that long is left."""

SILENT_S = 1.0
"""Who has answered nothing for that long, and is asked nothing, is asked whether it is there."""

PAUSE_S = 1.0
"""How long a peer that gave right chunks is not asked when it stops to: it may be busy. After that
it is asked for one, and left when it does not give that."""

SUSPECT_S = 10.0
"""How long a peer that was left is not asked; doubled each time that it happens again."""
_SUSPECT_MAX_S = 300.0

BAN_S = 3600.0
"""How long a peer that gave wrong bytes is not asked. A restarted agent is another peer."""

SLOW_FACTOR = 8.0
"""A transfer that takes so many times the usual is given up, if only by a trickle."""
SLOW_MIN_S = 10.0
_SLOW_MAX_S = 30.0
"""Where nothing is known of what is usual: whole links may be slow."""
_USUAL_WEIGHT = 0.1


@dataclass
class _Record:
    asked: int = 0
    heard_at: float = -math.inf
    not_before: float = 0.0
    stalls: int = 0
    banned: bool = False
    proven: bool = False
    """The last that came of it was a right chunk."""


class PeerScores:
    """What this node thinks of its peers."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._usual_s: float | None = None

    def _record(self, peer: str) -> _Record:
        return self._records.setdefault(peer, _Record())

    def trusted(self, peer: str, now: float) -> bool:
        """Whether it is worth waiting for: it has not stalled or lied of late."""
        record = self._records.get(peer)
        return record is None or not (record.stalls or record.banned) or now >= record.not_before

    def free(self, peer: str, now: float, alone: bool = False) -> bool:
        """Whether it may be asked for one more chunk now."""
        record = self._records.get(peer)
        if record is None:
            return True
        most = PEER_REQUESTS if record.proven or alone else 1
        return record.asked < most and now >= record.not_before

    def doubted(self, peer: str) -> bool:
        """Whether it may not have what it says that it has, nor bring what it should: it has given
        nothing since it stalled."""
        record = self._records.get(peer)
        return record is not None and record.stalls > 0

    def asked(self, peer: str) -> int:
        """Requests to it that are under way."""
        record = self._records.get(peer)
        return record.asked if record is not None else 0

    def least_busy(self, seed: str, peers: Sequence[str]) -> str | None:
        """The one with the fewest requests of ours. Ties differ by seed: by node and chunk, so
        that no peer is everybody's first."""
        return min(peers, key=lambda peer: (self.asked(peer), rank(seed, peer)), default=None)

    def ask(self, peer: str, now: float) -> None:
        record = self._record(peer)
        if not record.asked:
            record.heard_at = now
        record.asked += 1

    def answered(self, peer: str, now: float) -> None:
        """A request to it has ended, however it did."""
        record = self._record(peer)
        record.asked -= 1
        record.heard_at = now

    def silent(self, peer: str, now: float) -> bool:
        """Whether it is not known to be there: it is asked nothing, and was not of late."""
        record = self._records.get(peer)
        return record is None or (not record.asked and now >= record.heard_at + SILENT_S)

    def gave(self, peer: str, seconds: float) -> None:
        """A verified chunk came from it, in that time."""
        record = self._record(peer)
        record.stalls, record.proven = 0, True
        usual_s = self._usual_s
        self._usual_s = (
            seconds if usual_s is None else usual_s + _USUAL_WEIGHT * (seconds - usual_s)
        )

    def proven(self, peer: str) -> bool:
        """Whether the last that came of it was a right chunk."""
        record = self._records.get(peer)
        return record is not None and record.proven

    def busy(self, peer: str, retry_s: float, now: float) -> None:
        """It has no upload slot for us now."""
        record = self._record(peer)
        record.not_before = max(record.not_before, now + retry_s)

    def stalled(self, peer: str, now: float) -> None:
        """It did not answer, stopped half-way, or cannot be reached."""
        record = self._record(peer)
        if now < record.not_before:
            return  # the others of the requests that it left hanging
        if record.proven:
            record.proven, record.not_before = False, now + PAUSE_S
            return
        pause_s = min(SUSPECT_S * 2**record.stalls, _SUSPECT_MAX_S)
        record.stalls += 1
        record.not_before = now + pause_s

    def lied(self, peer: str, now: float) -> None:
        """It gave wrong bytes."""
        record = self._record(peer)
        record.banned = True
        record.not_before = now + BAN_S

    def is_banned(self, peer: str, now: float) -> bool:
        """Whether it gave wrong bytes and is not asked for it."""
        record = self._records.get(peer)
        return record is not None and record.banned and now < record.not_before

    def wakes_at(self, now: float) -> float | None:
        """When the next peer may be asked again."""
        later = (one.not_before for one in self._records.values() if one.not_before > now)
        return min(later, default=None)

    @property
    def patience_s(self) -> float:
        """How long one transfer may take, however steadily it trickles."""
        if self._usual_s is None:
            return _SLOW_MAX_S
        return max(SLOW_MIN_S, SLOW_FACTOR * self._usual_s)
