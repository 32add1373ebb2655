"""Which ticket must leave a full queue: each flow may fill its share of it, by weight. Pure.

A flow fills the larger of its parts of the requests and of the bytes. A full queue refuses the
requests of a flow that fills its share already. For a request of any other flow it pushes out
another ticket: the last one of the flow that is most above its share.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic

from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.ticket import Flow, Ticket, WaiterT

STALE_MOST = 64
"""Invalid entries that the heap may always keep."""


class Overflow(Generic[WaiterT]):
    """How much may wait, and how much of that each flow fills."""

    def __init__(self, fair_queue: FairQueue[WaiterT], limit: int, limit_bytes: int) -> None:
        self.limit = limit
        """Requests."""
        self.limit_bytes = limit_bytes
        self._fair_queue = fair_queue
        self._heaviest: list[tuple[float, int, Flow[WaiterT]]] = []
        """Flows by how much they fill, most first. Built when a ticket has to leave, and maintained
        while the queue is nearly full; an entry may be too large but not too small."""
        self._last_entry = 0

    def to_push_out(self, ticket: Ticket[WaiterT]) -> Ticket[WaiterT] | None:
        """The ticket that must leave the full queue for this one; None = this one is refused."""
        flow = self._fair_queue.flow_of(ticket.organization)
        heaviest = self._heaviest_flow()
        total = self._fair_queue.waiting_weight + (0.0 if flow.queue.count else flow.weight)
        full = self._fill(flow) * total >= 1.0
        # A ticket is pushed out only if no flow then fills more than before: otherwise the two
        # flows would push each other out for ever.
        if not full and heaviest is not None:
            after = self._fill(flow, requests=1, size_bytes=ticket.size_bytes)
            if after < self._fill(heaviest):
                return heaviest.queue.last
        last = flow.queue.last if flow.queue.count else None
        return last if last is not None and ticket.priority < last.priority else None

    @property
    def is_tracking(self) -> bool:
        """Whether `note_growth` has to be called."""
        return bool(self._heaviest)

    def note_growth(self, organization: str) -> None:
        """More requests or bytes of the organization wait than before."""
        flow = self._fair_queue.flow_of(organization)
        self._last_entry += 1
        heappush(self._heaviest, (-self._fill(flow), self._last_entry, flow))
        if len(self._heaviest) > 2 * len(self._fair_queue.waiting) + STALE_MOST:
            self._heaviest = []

    def _fill(self, flow: Flow[WaiterT], *, requests: int = 0, size_bytes: int = 0) -> float:
        """The part of the queue that the flow fills, with that much more, per unit of weight."""
        count, size = flow.queue.count + requests, flow.queued_bytes + size_bytes
        parts = count / max(1, self.limit), size / max(1, self.limit_bytes)
        return max(parts) / flow.weight

    def _heaviest_flow(self) -> Flow[WaiterT] | None:
        heap = self._heaviest
        if not heap:
            flows = enumerate(self._fair_queue.waiting)
            heap = self._heaviest = [(-self._fill(flow), -n, flow) for n, flow in flows]
            heapify(heap)
        while heap:
            fill, entry, flow = heap[0]
            now = -self._fill(flow)
            if now == fill and flow.queue.count:
                return flow
            if flow.queue.count:
                heapreplace(heap, (now, entry, flow))
            else:
                heappop(heap)
        return None
