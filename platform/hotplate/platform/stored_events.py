"""The platform's own events in the store, where no file of one machine is there for good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from hotplate.machine.background import BackgroundTasks
from hotplate.platform.errors import StoreFailed
from hotplate.platform.log_format import events
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import EventRecord

log = logging.getLogger("hotplate.event-log")


class StoredEvents:
    """Lives on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._adding = BackgroundTasks()
        self._added = 0

    def add(self, kind: str, message: str) -> None:
        """Keep what happens now, and log it. A store that fails costs the event, not the caller."""
        events.info("%s", message)
        self._adding.start(self._add(kind, message, datetime.now(UTC)), name="event")

    async def last(self, limit: int) -> Sequence[EventRecord]:
        """Newest first."""
        return await self._store.run(self._store.platform_events.last, limit)

    def mark(self) -> object:
        """Another one when something was added: nobody else adds."""
        return self._added

    async def finish(self) -> None:
        """Returns once all that was added is kept."""
        await self._adding.finish()

    async def _add(self, kind: str, message: str, at: datetime) -> None:
        try:
            await self._store.run(self._store.platform_events.add, kind, message, at)
            self._added += 1
        except StoreFailed as error:
            log.warning("the event is not stored: %s", error)
