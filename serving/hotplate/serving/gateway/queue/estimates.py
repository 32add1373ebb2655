"""Estimates of when a request gets its slot. Pure.

While a replica is open, the requests that wait are expected to take as long as those that have
ended; while none is, the next cold start is expected to take as long as the latest one.
"""

from __future__ import annotations

from typing import Generic

from hotplate.serving.gateway.queue.fairness import FairQueue
from hotplate.serving.gateway.queue.replica_slots import Slots
from hotplate.serving.gateway.queue.service_time import ServiceTime
from hotplate.serving.gateway.queue.ticket import WaiterT
from hotplate.serving.gateway.queue.waiting import Waiting


class Estimates(Generic[WaiterT]):
    """Estimates for the callers of a route."""

    def __init__(
        self,
        slots: Slots,
        fair_queue: FairQueue[WaiterT],
        waiting: Waiting[WaiterT],
        service: ServiceTime,
    ) -> None:
        self._slots = slots
        self._fair_queue = fair_queue
        self._waiting = waiting
        self._service = service

    def retry_after_s(self, now: float) -> float:
        """When a refused request should be sent again: by then all that wait now should be done."""
        if not self._slots.ready:
            return self.start_s(0, now) or 0.0
        return self._service.work_s(self._fair_queue.count) / self._slots.total

    def start_s(self, ahead: float, now: float) -> float | None:
        """Seconds until a request gets its slot with `ahead` requests before it; None = unknown."""
        slots = self._slots
        if not slots.ready:
            began_at, cold_start_s = self._waiting.cold_start_began_at, self._waiting.cold_start_s
            if began_at is None or not cold_start_s:
                return cold_start_s or None
            return max(0.0, began_at + cold_start_s - now)
        if not self._fair_queue.count and slots.any_free:
            return 0.0
        # On average the next request ends after half the time between two ends.
        return self._service.work_s(ahead + 0.5) / slots.total
