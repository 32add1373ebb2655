"""When tickets' times are over, the earliest first. Pure.

A heap whose entries stay when a ticket ends or its time changes, and are thrown away together once
they are more than the others: a request costs one push, which for equal time-outs is an append.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic

from hotplate.serving.gateway.queue.ticket import ENDED, Holder, Ticket

STALE_MOST: Final = 64
"""Entries of no use that are kept at least."""


class Deadlines(Generic[Holder]):
    """The deadlines of a queue's tickets, waiting and running."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket[Holder]]] = []
        self._sweep_at = STALE_MOST

    def add(self, ticket: Ticket[Holder]) -> None:
        """Watches `ticket.ends_at`, if it ever comes; call it again when that has changed."""
        heap, ends_at = self._heap, ticket.ends_at
        if ends_at == math.inf:
            return
        count = len(heap)
        if count and ends_at < heap[(count - 1) >> 1][0]:
            heappush(heap, (ends_at, ticket.number, ticket))
        else:  # it is later than the entry above its place, so that is where it stays
            heap.append((ends_at, ticket.number, ticket))
        if count >= self._sweep_at:
            self.replace(())

    def replace(self, tickets: Iterable[Ticket[Holder]]) -> None:
        """Watches these too, whose ends have all changed, and throws away what is of no use."""
        heap: list[tuple[float, int, Ticket[Holder]]] = []
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
        if not in_order:  # with equal time-outs it is, and so a heap
            heapify(heap)
        self._heap = heap
        self._sweep_at = 2 * len(heap) + STALE_MOST

    def over(self, now: float) -> Iterator[Ticket[Holder]]:
        """Takes out those whose time is over."""
        while self.next_at <= now:
            yield heappop(self._heap)[2]

    @property
    def next_at(self) -> float:
        """The earliest; infinite = nobody's time ends."""
        heap = self._heap
        while heap and not _is_due(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def __len__(self) -> int:
        return len(self._heap)


def _is_due(entry: tuple[float, int, Ticket[Holder]]) -> bool:
    ends_at, _, ticket = entry
    return ticket.place != ENDED and ticket.ends_at == ends_at and not ticket.expired
