"""Blobs of the arena, written to the disk tier one after another behind those who read them."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.copies.landing import DiskCopy
from hotplate.cache.errors import CacheError
from hotplate.cache.tiers.arena import LARGE_BYTES, Region
from hotplate.cache.tiers.disk import DiskTier, Reservation, disk_error

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 30.0
"""Between tries to write to a disk that has no room."""

READING_S = 1.0
"""Who has read a large file while it arrived ends in that time, undisturbed by a copy of all of it,
which takes the processors and the memory's bandwidth that the last bytes need."""

_NICENESS = 10
"""Writing behind is never urgent, and serving is."""


class WriteBehind:
    """One thread that writes. `keep` and `mend` are called on the event loop."""

    def __init__(self, disk: DiskTier, claim: Callable[[int], Awaitable[Reservation]]) -> None:
        """`claim` makes room on disk, or raises NoSpace."""
        self._disk = disk
        self._claim = claim
        self._thread = ThreadPoolExecutor(1, "write-behind", initializer=_lower_priority)
        self._waiting: dict[str, str] = {}

    @property
    def trouble(self) -> str:
        """Why files are in memory only; empty when none is."""
        return next(iter(self._waiting.values()), "")

    async def keep(self, holding: CachedBlob, region: Region) -> None:
        """Tries until it is there; who waits for the file is told of each failure."""
        pause_s = _FIRST_PAUSE_S
        if holding.leases and region.size_bytes >= LARGE_BYTES:
            await asyncio.sleep(READING_S)
        try:
            while (error := await self._write(holding, region)) is not None:
                self._tell(holding, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            self._waiting.pop(holding.name, None)
        if holding.disk_error is not None:
            holding.disk_error = None
            if not self._waiting:
                log.info("disk tier %s: all that is in memory is on disk again", self._disk.root)

    async def mend(self, holding: CachedBlob, region: Region, copy: DiskCopy) -> None:
        """Writes over what was wrong in the blob's file; if that fails, the whole file anew."""
        fd = region.lend()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, copy.mend, fd)
        except CacheError as error:
            log.warning("%s: written anew, since %s", holding.name, error)
            self._disk.discard(holding.key)
            await self.keep(holding, region)
        finally:
            os.close(fd)

    def close(self) -> None:
        """What has not begun is not written any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _tell(self, holding: CachedBlob, error: CacheError) -> None:
        """Once per trouble in the log, however many files it keeps in memory."""
        if not self._waiting:
            log.error("%s is in memory only: %s", holding.name, error)
        self._waiting[holding.name] = str(error)
        holding.disk_error = error
        holding.notify()

    async def _write(self, holding: CachedBlob, region: Region) -> CacheError | None:
        """Why the disk does not take it."""
        try:
            claim = await self._claim(holding.content.size_bytes)
        except CacheError as error:
            return error
        job = self._thread.submit(self._copy, claim, holding.key, region)
        try:
            await asyncio.shield(asyncio.wrap_future(job))
        except CacheError as error:
            return error
        except asyncio.CancelledError:
            if job.cancel():
                claim.release()
            else:  # it ends by itself; nobody may believe before that the file is not there
                await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
            raise
        return None

    def _copy(self, claim: Reservation, digest: str, region: Region) -> None:
        folder = self._disk.folder
        try:
            fd, name = folder.create(digest, claim.size_bytes)
        except OSError as exc:
            claim.release()
            raise disk_error(self._disk.root, claim.size_bytes, exc) from exc
        try:
            source_fd = region.lend()
            try:
                folder.copy(fd, source_fd, 0, claim.size_bytes)
            finally:
                os.close(source_fd)
            folder.sync(fd)
            self._disk.keep(name, digest, claim)
            folder.sync_names()
        except (OSError, CacheError) as exc:
            folder.remove(name)
            claim.release()
            if isinstance(exc, CacheError):
                raise
            raise disk_error(self._disk.root, claim.size_bytes, exc) from exc
        finally:
            os.close(fd)


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
