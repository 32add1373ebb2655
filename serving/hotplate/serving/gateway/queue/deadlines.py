"""The tickets' deadlines, the earliest first. Pure.

This is a heap in which entries stay when a ticket ends or its deadline changes. They are dropped
together once they outnumber the valid ones: a request costs one push, which is an append where all
time limits are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic

from hotplate.serving.gateway.queue.ticket import ENDED, Ticket, WaiterT

STALE_MOST: Final = 64
"""Invalid entries that the heap may always keep."""


class Deadlines(Generic[WaiterT]):
    """The deadlines of a queue's tickets, waiting and running."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket[WaiterT]]] = []
        self._sweep_at = STALE_MOST

    def add(self, ticket: Ticket[WaiterT]) -> None:
        """Watches `ticket.ends_at`, unless it is infinite. Call it again when that has changed."""
        heap, ends_at = self._heap, ticket.ends_at
        if ends_at == math.inf:
            return
        count = len(heap)
        if count and ends_at < heap[(count - 1) >> 1][0]:
            heappush(heap, (ends_at, ticket.number, ticket))
        else:  # it is no earlier than its parent in the heap, so it may stay at the end
            heap.append((ends_at, ticket.number, ticket))
        if count >= self._sweep_at:
            self.replace(())

    def replace(self, tickets: Iterable[Ticket[WaiterT]]) -> None:
        """Watches these tickets too, whose deadlines have changed, and drops invalid entries."""
        heap: list[tuple[float, int, Ticket[WaiterT]]] = []
        latest, in_order = -math.inf, True
        for entry in self._heap:
            if _is_due(entry):
                in_order = in_order and latest <= entry[0]
                latest = entry[0]
                heap.append(entry)
        for ticket in tickets:
            in_order = in_order and latest <= ticket.ends_at
            latest = ticket.ends_at
            heap.append((latest, ticket.number, ticket))
        if not in_order:  # a sorted list is a heap, and with equal time limits it is sorted
            heapify(heap)
        self._heap = heap
        self._sweep_at = 2 * len(heap) + STALE_MOST

    def expired(self, now: float) -> Iterator[Ticket[WaiterT]]:
        """Removes and yields the tickets whose time is over."""
        while self.next_at <= now:
            yield heappop(self._heap)[2]

    @property
    def next_at(self) -> float:
        """The earliest deadline; infinite = there is none."""
        heap = self._heap
        while heap and not _is_due(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def __len__(self) -> int:
        return len(self._heap)


def _is_due(entry: tuple[float, int, Ticket[WaiterT]]) -> bool:
    ends_at, _, ticket = entry
    return ticket.state != ENDED and ticket.ends_at == ends_at and not ticket.expired
