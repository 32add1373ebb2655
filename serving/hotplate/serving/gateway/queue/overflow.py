"""Who must leave a full queue: each organization may fill its share of it, by weight. Pure.

What an organization fills is the larger of its parts of the requests and of the bytes. A full
queue refuses whoever fills its share already; a request of any other gets its place from the
organization that is most above its own share, whose last in order is pushed out.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic

from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.ticket import Holder, Share, Ticket

STALE_MOST = 64
"""Entries of no use that the heap keeps at least."""


class Room(Generic[Holder]):
    """How much may wait, and who fills how much of it."""

    def __init__(self, line: FairLine[Holder], limit: int, limit_bytes: int) -> None:
        self.limit = limit
        """Requests."""
        self.limit_bytes = limit_bytes
        self._line = line
        self._heaviest: list[tuple[float, int, Share[Holder]]] = []
        """Shares by the part that they fill, most first. Made when somebody has to go, and kept
        up for as long as the queue is near full; an entry may say too much but not too little."""
        self._entries = 0

    def to_push_out(self, ticket: Ticket[Holder]) -> Ticket[Holder] | None:
        """Who must leave the full queue so that this one can wait; None = it must not."""
        share = self._line.share_of(ticket.organization)
        heaviest = self._most()
        total = self._line.waiting_weight + (0.0 if share.order.count else share.weight)
        full = self._part(share) * total >= 1.0
        # A place changes hands only if nobody then fills more than before, or it would go on.
        if not full and heaviest is not None:
            after = self._part(share, requests=1, size_bytes=ticket.size_bytes)
            if after < self._part(heaviest):
                return heaviest.order.last
        last = share.order.last if share.order.count else None
        return last if last is not None and ticket.priority < last.priority else None

    @property
    def watched(self) -> bool:
        """Whether it has to be told of what `grew`."""
        return bool(self._heaviest)

    def grew(self, organization: str) -> None:
        """More of its requests, or bytes, wait than before."""
        share = self._line.share_of(organization)
        self._entries += 1
        heappush(self._heaviest, (-self._part(share), self._entries, share))
        if len(self._heaviest) > 2 * len(self._line.waiting) + STALE_MOST:
            self._heaviest = []

    def _part(self, share: Share[Holder], *, requests: int = 0, size_bytes: int = 0) -> float:
        """What it fills of the queue, with so much more, for each unit of its weight."""
        count, size = share.order.count + requests, share.queued_bytes + size_bytes
        parts = count / max(1, self.limit), size / max(1, self.limit_bytes)
        return max(parts) / share.weight

    def _most(self) -> Share[Holder] | None:
        heap = self._heaviest
        if not heap:
            shares = enumerate(self._line.waiting)
            heap = self._heaviest = [(-self._part(share), -n, share) for n, share in shares]
            heapify(heap)
        while heap:
            part, entry, share = heap[0]
            now = -self._part(share)
            if now == part and share.order.count:
                return share
            if share.order.count:
                heapreplace(heap, (now, entry, share))
            else:
                heappop(heap)
        return None
