"""How each peer has behaved towards this node: whether it may be asked, and how much at once.

All that a node fetches shares one such record. No I/O, no clock: callers pass `now` in seconds of
any monotonic clock. Peers are known by their ids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotplate.cache.swarm.rendezvous import rank

PEER_REQUESTS = 4
"""Requests to one peer at a time: two fill a fast link, and two more hide their round trips. A peer
that has given nothing yet, or has stalled since, gets one, so that a liar wastes no more than that;
unless it is the only peer, since the link would then wait for its first chunk."""

NO_PROGRESS_S = 2.5
"""A peer that sends nothing for that long has stalled."""

PROBE_AFTER_S = 1.0
"""A peer that has answered nothing for that long, and is asked nothing, is probed."""

PAUSE_S = 1.0
"""How long a peer is not asked that stalls after giving right chunks: it may be busy. After that it
is asked for one chunk, and suspected when it does not give that."""

SUSPECT_S = 10.0
"""How long a suspected peer is not asked; doubled each time that it stalls again."""
_SUSPECT_MAX_S = 300.0

BAN_S = 3600.0
"""How long a peer that gave wrong bytes is not asked. A restarted agent is another peer."""

SLOW_FACTOR = 8.0
"""A transfer that takes this many times the usual is given up, even while bytes trickle in."""
SLOW_MIN_S = 10.0
_SLOW_MAX_S = 30.0
"""The limit while nothing is known of what is usual: whole links may be slow."""
_USUAL_WEIGHT = 0.1


@dataclass
class _Record:
    requests: int = 0
    last_response_at: float = -math.inf
    not_before: float = 0.0
    stalls: int = 0
    banned: bool = False
    proven: bool = False
    """The last thing that it gave was a right chunk."""


class PeerScores:
    """The record of each peer's behaviour."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._usual_s: float | None = None

    def _record(self, peer: str) -> _Record:
        return self._records.setdefault(peer, _Record())

    def trusted(self, peer: str, now: float) -> bool:
        """Whether the peer is worth waiting for: it has not stalled or given wrong bytes of
        late."""
        record = self._records.get(peer)
        return record is None or not (record.stalls or record.banned) or now >= record.not_before

    def free(self, peer: str, now: float, alone: bool = False) -> bool:
        """Whether the peer may be asked for one more chunk now; `alone`: there is no other."""
        record = self._records.get(peer)
        if record is None:
            return True
        most = PEER_REQUESTS if record.proven or alone else 1
        return record.requests < most and now >= record.not_before

    def doubted(self, peer: str) -> bool:
        """Whether the peer may neither have nor bring what it announces: it has given nothing since
        it stalled."""
        record = self._records.get(peer)
        return record is not None and record.stalls > 0

    def requests(self, peer: str) -> int:
        """How many requests to the peer are under way."""
        record = self._records.get(peer)
        return record.requests if record is not None else 0

    def least_busy(self, seed: str, peers: Sequence[str]) -> str | None:
        """The peer with the fewest requests of ours. Ties are broken by seed, which differs by node
        and chunk, so that no peer is the first choice of all nodes."""
        return min(peers, key=lambda peer: (self.requests(peer), rank(seed, peer)), default=None)

    def request_began(self, peer: str, now: float) -> None:
        """A request to the peer has gone out."""
        record = self._record(peer)
        if not record.requests:
            record.last_response_at = now
        record.requests += 1

    def request_ended(self, peer: str, now: float) -> None:
        """A request to the peer has ended, one way or another."""
        record = self._record(peer)
        record.requests -= 1
        record.last_response_at = now

    def needs_probe(self, peer: str, now: float) -> bool:
        """Whether it is unknown if the peer is alive: nothing is asked of it, nor was of late."""
        record = self._records.get(peer)
        return record is None or (
            not record.requests and now >= record.last_response_at + PROBE_AFTER_S
        )

    def delivered(self, peer: str, seconds: float) -> None:
        """A verified chunk came from the peer, in that time."""
        record = self._record(peer)
        record.stalls, record.proven = 0, True
        usual_s = self._usual_s
        self._usual_s = (
            seconds if usual_s is None else usual_s + _USUAL_WEIGHT * (seconds - usual_s)
        )

    def proven(self, peer: str) -> bool:
        """Whether the last thing that the peer gave was a right chunk."""
        record = self._records.get(peer)
        return record is not None and record.proven

    def busy(self, peer: str, retry_s: float, now: float) -> None:
        """The peer has no upload slot for us now."""
        record = self._record(peer)
        record.not_before = max(record.not_before, now + retry_s)

    def stalled(self, peer: str, now: float) -> None:
        """The peer did not answer, stopped half-way, or cannot be reached."""
        record = self._record(peer)
        if now < record.not_before:
            return  # another of the requests that it left hanging
        if record.proven:
            record.proven, record.not_before = False, now + PAUSE_S
            return
        pause_s = min(SUSPECT_S * 2**record.stalls, _SUSPECT_MAX_S)
        record.stalls += 1
        record.not_before = now + pause_s

    def ban(self, peer: str, now: float) -> None:
        """The peer gave wrong bytes, or attested a wrong digest."""
        record = self._record(peer)
        record.banned = True
        record.not_before = now + BAN_S

    def is_banned(self, peer: str, now: float) -> bool:
        """Whether the peer is not asked because of wrong bytes or digests."""
        record = self._records.get(peer)
        return record is not None and record.banned and now < record.not_before

    def wakes_at(self, now: float) -> float | None:
        """When the next peer may be asked again."""
        later = (one.not_before for one in self._records.values() if one.not_before > now)
        return min(later, default=None)

    @property
    def patience_s(self) -> float:
        """How long one transfer may take, however steadily its bytes trickle in."""
        if self._usual_s is None:
            return _SLOW_MAX_S
        return max(SLOW_MIN_S, SLOW_FACTOR * self._usual_s)
