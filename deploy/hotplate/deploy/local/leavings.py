"""When the folders of replicas that have ended are removed: as soon as nothing starts.

To remove one takes as long as a sixth of a start, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from hotplate.deploy.local.records import Records
from hotplate.machine import foreign_folder

LATEST_S = 10.0
"""After which they are removed although others start: their disk may be needed. What could not be
removed is tried again as late."""

log = logging.getLogger(__name__)


class Leavings:
    """Of one engine, on its event loop."""

    def __init__(self, records: Records, starting: Callable[[], bool]) -> None:
        """`starting` says whether any replica starts; `look` is called when that may have
        changed."""
        self._records = records
        self._starting = starting
        self._left = asyncio.Event()
        self._stirred = asyncio.Event()

    def add(self) -> None:
        """A folder has been left."""
        self._left.set()

    def look(self) -> None:
        """Something has begun or ended."""
        self._stirred.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._left.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(LATEST_S):
                    while self._starting():
                        self._stirred.clear()
                        await self._stirred.wait()
            await self.clear()

    async def clear(self) -> None:
        """Remove all of them now; what cannot be removed is tried again."""
        self._left.clear()
        try:
            await foreign_folder.aside_for_long(self._records.clear_leavings)
        except OSError as error:  # too few descriptors, say
            log.warning("folders of replicas that have ended cannot be removed now: %s", error)
            asyncio.get_running_loop().call_later(LATEST_S, self._left.set)
