"""Blobs of the arena, written to the disk tier one after another behind those who read them."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from hotplate.cache.arena import Region
from hotplate.cache.disk import DiskTier
from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.holding import Holding

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 30.0
"""Between tries to write to a disk that has no room."""

_NICENESS = 10
"""Writing behind is never urgent, and serving is."""


class WriteBehind:
    """One thread that writes. `keep` is called on the event loop."""

    def __init__(self, disk: DiskTier) -> None:
        self._disk = disk
        self._thread = ThreadPoolExecutor(1, "write-behind", initializer=_lower_priority)

    async def keep(self, holding: Holding, region: Region) -> None:
        """Tries until there is room; who waits for the file is told of each failure."""
        pause_s = _FIRST_PAUSE_S
        while (error := await self._write(holding, region)) is not None:
            if holding.disk_error is None:
                log.error("%s is in memory only: %s", holding.name, error)
            holding.disk_error = error
            if not isinstance(error, NoSpace):
                return
            holding.notify()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        holding.disk_error = None

    def close(self) -> None:
        """What has not begun is not written any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _write(self, holding: Holding, region: Region) -> CacheError | None:
        """Why the disk does not take it."""
        fd = region.lend()

        def write() -> None:
            try:
                self._disk.write(holding.key, fd, holding.content.size_bytes)
            finally:
                os.close(fd)

        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, write)
        except CacheError as error:
            return error
        return None


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
