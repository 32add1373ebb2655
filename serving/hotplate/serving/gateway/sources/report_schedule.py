"""When the control plane is owed a report of demand: at once for news, else in batches.

The gateway tells of every change, and the connection to the control plane waits for what is due.
Neither knows the other.
"""

from __future__ import annotations

import asyncio

from hotplate.serving.gateway.protocol.routes import Change, DemandReport

BATCH_S = 0.2
"""Changes that are not urgent are reported together after this."""


class ReportSchedule:
    """Of one gateway; used from one event loop."""

    def __init__(self) -> None:
        self.connected = False
        self._due = asyncio.Event()
        self._batch: asyncio.TimerHandle | None = None
        self._sent: DemandReport | None = None
        """The last report of this connection; None = one is owed, whatever it says."""

    def changed(self, name: str, change: Change) -> None:
        """A route's demand has changed: it is reported at once if that is news, else batched.

        Work that begins is news only if the control plane does not know of any on that route.
        """
        if change is Change.DRAINED or (change is Change.BEGAN and not self._knows_demand(name)):
            self._due.set()
        elif self._batch is None and self.connected:
            self._batch = asyncio.get_running_loop().call_later(BATCH_S, self._due.set)

    def owe(self) -> None:
        """A report is due now, whatever was sent before."""
        self._sent = None
        self._due.set()

    async def due(self) -> None:
        """Waits until a report is due; from then on the next one is waited for."""
        await self._due.wait()
        self._due.clear()
        if self._batch is not None:
            self._batch.cancel()
            self._batch = None

    def is_news(self, report: DemandReport) -> bool:
        """Whether it says something else than the last one; it counts as sent then."""
        if report == self._sent:
            return False
        self._sent = report
        return True

    def _knows_demand(self, name: str) -> bool:
        known = None if self._sent is None else self._sent.routes.get(name)
        return known is not None and known.demand > 0
