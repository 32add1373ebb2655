"""When a request gets its slot, as far as is known. Pure.

While a replica is open, what waits is done at the pace of those that have ended; while none is, the
newest cold start says how long the next one takes.
"""

from __future__ import annotations

from typing import Generic

from hotplate.serving.gateway.queue.fairness import FairLine
from hotplate.serving.gateway.queue.replica_slots import Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import Holder
from hotplate.serving.gateway.queue.waiting import Waiting


class Estimates(Generic[Holder]):
    """What a caller of the route can be told."""

    def __init__(
        self,
        slots: Slots,
        line: FairLine[Holder],
        waiting: Waiting[Holder],
        service: ServiceTime,
    ) -> None:
        self._slots = slots
        self._line = line
        self._waiting = waiting
        self._service = service

    def retry_after_s(self, now: float) -> float:
        """When a request could have its slot that comes again: what waits now is done by then."""
        if not self._slots.ready:
            return self.start_s(0, now) or 0.0
        return self._service.work_s(self._line.count) / self._slots.total

    def start_s(self, ahead: float, now: float) -> float | None:
        """When a request gets its slot, from now, with so many ahead of it; None = not known."""
        slots = self._slots
        if not slots.ready:
            held_since, cold_start_s = self._waiting.held_since, self._waiting.cold_start_s
            if held_since is None or not cold_start_s:
                return cold_start_s or None
            return max(0.0, held_since + cold_start_s - now)
        if not self._line.count and slots.any_free:
            return 0.0
        # Of those that run, the first is done in half the time between two that end, on average.
        return self._service.work_s(ahead + 0.5) / slots.total
