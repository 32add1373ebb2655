"""Writes blobs of the arena to the disk tier, one after another, while replicas read them."""

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
"""How long the copy of a large file waits when a reader has followed its arrival: the reader's last
bytes need the processors and the memory bandwidth that the copy would take."""

_NICENESS = 10
"""Writing behind is never urgent; serving is."""


class WriteBehind:
    """One thread that writes. `keep` and `mend` are called on the event loop."""

    def __init__(self, disk: DiskTier, reserve: Callable[[int], Awaitable[Reservation]]) -> None:
        """`reserve` makes room on disk, or raises NoSpace."""
        self._disk = disk
        self._reserve = reserve
        self._thread = ThreadPoolExecutor(1, "write-behind", initializer=_lower_priority)
        self._waiting: dict[str, str] = {}

    @property
    def trouble(self) -> str:
        """Why files are in memory only; empty when none is."""
        return next(iter(self._waiting.values()), "")

    async def keep(self, cached: CachedBlob, region: Region) -> None:
        """Tries until the file is on disk; its waiters see each failure as `disk_error`."""
        pause_s = _FIRST_PAUSE_S
        if cached.leases and region.size_bytes >= LARGE_BYTES:
            await asyncio.sleep(READING_S)
        try:
            while (error := await self._write(cached, region)) is not None:
                self._note_failure(cached, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            self._waiting.pop(cached.name, None)
        if cached.disk_error is not None:
            cached.disk_error = None
            if not self._waiting:
                log.info("disk tier %s: all that is in memory is on disk again", self._disk.root)

    async def mend(self, cached: CachedBlob, region: Region, copy: DiskCopy) -> None:
        """Overwrites what was wrong in the blob's file; if that fails, writes the whole file
        again."""
        fd = region.lend()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, copy.mend, fd)
        except CacheError as error:
            log.warning("%s: written anew, since %s", cached.name, error)
            self._disk.discard(cached.key)
            await self.keep(cached, region)
        finally:
            os.close(fd)

    def close(self) -> None:
        """A copy that has not begun is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _note_failure(self, cached: CachedBlob, error: CacheError) -> None:
        """Logs the trouble once, however many files it keeps in memory."""
        if not self._waiting:
            log.error("%s is in memory only: %s", cached.name, error)
        self._waiting[cached.name] = str(error)
        cached.disk_error = error
        cached.notify()

    async def _write(self, cached: CachedBlob, region: Region) -> CacheError | None:
        """The error where the disk does not take the blob."""
        try:
            reservation = await self._reserve(cached.content.size_bytes)
        except CacheError as error:
            return error
        job = self._thread.submit(self._copy, reservation, cached.key, region)
        try:
            await asyncio.shield(asyncio.wrap_future(job))
        except CacheError as error:
            return error
        except asyncio.CancelledError:
            if job.cancel():
                reservation.release()
            else:  # it ends by itself; until then the file may still appear
                await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)
            raise
        return None

    def _copy(self, reservation: Reservation, digest: str, region: Region) -> None:
        folder = self._disk.folder
        try:
            fd, name = folder.create(digest, reservation.size_bytes)
        except OSError as exc:
            reservation.release()
            raise disk_error(self._disk.root, reservation.size_bytes, exc) from exc
        try:
            source_fd = region.lend()
            try:
                folder.copy(fd, source_fd, 0, reservation.size_bytes)
            finally:
                os.close(source_fd)
            folder.sync(fd)
            self._disk.keep(name, digest, reservation)
            folder.sync_names()
        except (OSError, CacheError) as exc:
            folder.remove(name)
            reservation.release()
            if isinstance(exc, CacheError):
                raise
            raise disk_error(self._disk.root, reservation.size_bytes, exc) from exc
        finally:
            os.close(fd)


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
