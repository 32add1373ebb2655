"""What is done for volumes while their pods are there: one thing at a time for all of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hotplate.cache.errors import CacheError
from hotplate.machine.background import retrieve_error

log = logging.getLogger(__name__)

T = TypeVar("T")
Beat = Callable[[], None]
"""Is called again and again by threads that work for a pod; raises CacheError once that has
gone."""


@dataclass(frozen=True)
class _Work(Generic[T]):
    task: asyncio.Task[T]
    stopped: threading.Event


class VolumeTasks(Generic[T]):
    """One task for each volume. Lives on the event loop."""

    def __init__(self, what: str) -> None:
        """`what` names it in the log."""
        self._what = what
        self._running: dict[str, _Work[T]] = {}
        self._turn = asyncio.Lock()  # each may take much memory

    async def run(self, volume: str, work: Callable[[Beat], Awaitable[T]]) -> T:
        """What `work` returns; joins the call that began it, if one did. Raises CacheError."""
        running = self._running.get(volume)
        if running is None:
            stopped = threading.Event()
            task = asyncio.create_task(self._run(volume, work, stopped))
            task.add_done_callback(retrieve_error)
            task.add_done_callback(lambda _: self._running.pop(volume, None))
            running = self._running[volume] = _Work(task, stopped)
        return await asyncio.shield(running.task)

    async def stop(self, volume: str) -> None:
        """The pod has gone; returns when nothing is done for it any longer."""
        if (running := self._running.get(volume)) is not None:
            running.stopped.set()
            running.task.cancel()
            await asyncio.wait({running.task})

    async def close(self) -> None:
        for volume in list(self._running):
            await self.stop(volume)

    async def _run(
        self, volume: str, work: Callable[[Beat], Awaitable[T]], stopped: threading.Event
    ) -> T:
        def beat() -> None:
            if stopped.is_set():
                raise CacheError("the pod has gone")

        try:
            async with self._turn:
                return await work(beat)
        except CacheError as error:
            log.warning("%s of volume %s: %s", self._what, volume, error)
            raise
        except Exception as error:  # whatever lies there, the pod is to be told
            log.exception("%s of volume %s", self._what, volume)
            raise CacheError(f"the agent cannot take it over ({error!r})") from error
