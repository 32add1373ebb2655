"""Writes of what happened, which wait for a database that cannot take them now (its disk is full).

What a deployment needs is done without them: a replica that is wanted must not wait for the record
of the decision. They are lost only with the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store

P = ParamSpec("P")

WAITING_MAX = 10_000
"""More than any day of events; what comes after is not kept."""
TOGETHER_MAX = 500
"""Writes in one transaction: others wait for no longer than it takes."""

log = logging.getLogger("hotplate.controller")


class PendingWrites:
    """Writes in order, all of a round in one transaction: each of its own would wait for the disk.
    Several tasks may flush: one does it after the other.
    """

    def __init__(self, store: Store, written: Callable[[], None] = lambda: None) -> None:
        """`written` is called when nothing waits any more."""
        self._store = store
        self._written = written
        self._waiting: deque[Callable[[], Any]] = deque()
        self._turn = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._failed = False
        """Whether the database has refused what waits."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have it written with the next `flush`, after all that wait."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(partial(call, *args, **kwargs))

    async def flush(self) -> bool:
        """Write all that waits, or let it wait on; whether nothing waits now. Raises no
        StoreFailed."""
        async with self._turn:
            while self._waiting:
                most = min(len(self._waiting), TOGETHER_MAX)
                batch = [self._waiting.popleft() for _ in range(most)]
                try:
                    # Whoever cancels us and flushes again writes nothing twice.
                    await asyncio.shield(self._store.run(self._write, batch))
                except StoreFailed as error:
                    self._waiting.extendleft(reversed(batch))
                    if not self._failed:
                        log.warning(
                            "events and decisions wait until the database takes them: %s", error
                        )
                    self._failed = True
                    return False
                self._failed = False
            self._written()
            return True

    def flush_soon(self, failed: Callable[[], object]) -> None:
        """Begin to write what waits, unless that goes on already: then what comes until its end is
        written too. `failed` is called when something has to wait on."""

        async def flushed() -> None:
            if not await self.flush():
                failed()

        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(flushed(), name="records")

    def _write(self, batch: list[Callable[[], Any]]) -> None:
        try:
            with self._store.database.together():
                for call in batch:
                    call()
        except StoreFailed:
            raise
        except Exception:  # one of them is faulty: that one is lost, and holds up no other
            while batch:  # what is written does not wait any longer
                self._write_alone(batch[0])
                del batch[0]

    def _write_alone(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except StoreFailed:
            raise
        except Exception:  # it would fail each time
            log.exception("what has happened cannot be written")
