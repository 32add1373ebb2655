"""Tasks that nobody awaits: kept while they run, and ended together; and work that is waited for
however often its caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Holds tasks until they end: an event loop alone holds them so weakly that one that waits
    may be collected. Lives on one event loop.

    A task that raises is reported by the loop's exception handler, unless the caller of `start`
    awaits it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are running."""
        return len(self._tasks)

    def start(
        self, work: Coroutine[Any, Any, None], *, name: str | None = None
    ) -> asyncio.Task[None]:
        """Runs `work` from the loop's next turn on; the running loop is the one that it runs on."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Returns once none is running, those included that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Cancels all that run now and returns once they have ended; what they raise is dropped."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """A done-callback for tasks whose failure is told to those that wait for it: where nobody
    does, the loop is not to report it."""
    if not task.cancelled():
        task.exception()


async def until_done(work: Coroutine[Any, Any, object]) -> None:
    """Returns when it is done, however often the caller is cancelled meanwhile; what it raises is
    raised. The caller re-raises its own cancellation."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def thread_to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, which waits for a thread; when cancelled, it still waits until that has
    ended: a thread cannot be interrupted, and what it writes to may be removed next."""
    running = asyncio.ensure_future(work)
    running.add_done_callback(retrieve_error)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await until_done(asyncio.wait({running}))
        raise
