"""When a report of demand to the control plane is due: at once if it is urgent, else in batches.

The gateway notifies the schedule of every change, and the connection to the control plane waits for
the next report that is due. Neither knows the other.
"""

from __future__ import annotations

import asyncio

from hotplate.serving.gateway.protocol.routes import Change, DemandReport

BATCH_S = 0.2
"""Changes that are not urgent are reported together after this."""


class ReportSchedule:
    """The schedule of one gateway; used from one event loop."""

    def __init__(self) -> None:
        self.connected = False
        self._due = asyncio.Event()
        self._batch: asyncio.TimerHandle | None = None
        self._sent: DemandReport | None = None
        """The last report on this connection; None = a report is due, whatever it says."""

    def changed(self, name: str, change: Change) -> None:
        """A route's demand has changed: it is reported at once if that is urgent, else batched.
        Work that begins is urgent only if the control plane does not know of any on that route."""
        if change is Change.DRAINED or (change is Change.BEGAN and not self._knows_demand(name)):
            self._due.set()
        elif self._batch is None and self.connected:
            self._batch = asyncio.get_running_loop().call_later(BATCH_S, self._due.set)

    def request(self) -> None:
        """A report is due now, whatever was sent before."""
        self._sent = None
        self._due.set()

    async def due(self) -> None:
        """Waits until a report is due."""
        await self._due.wait()
        self._due.clear()
        if self._batch is not None:
            self._batch.cancel()
            self._batch = None

    def take_if_changed(self, report: DemandReport) -> bool:
        """Whether the report differs from the last one, or has counted anything since; if so, it
        counts as sent."""
        if report == self._sent and not report.counted:
            return False
        self._sent = report
        return True

    def _knows_demand(self, name: str) -> bool:
        known = None if self._sent is None else self._sent.routes.get(name)
        return known is not None and known.demand > 0
