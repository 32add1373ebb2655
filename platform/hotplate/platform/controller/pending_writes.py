"""Writes of what happened, which wait for a database that cannot take them now (its disk is full).

What a deployment needs is done without them: a replica that is wanted must not wait for the record
of the decision. They are lost only with the process.
"""

from __future__ import annotations

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

log = logging.getLogger("hotplate.controller")


class PendingWrites:
    """Writes in order, each when those before it are done. For one task alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[Callable[[], Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def write(self, call: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do it after all that wait, or let it wait too. Raises no StoreFailed."""
        waited = len(self._waiting)
        if waited < WAITING_MAX:
            self._waiting.append(partial(call, *args, **kwargs))
        while self._waiting:
            first = self._waiting.popleft()
            try:
                await self._store.run(first)
            except StoreFailed as error:
                self._waiting.appendleft(first)
                if not waited:
                    log.warning(
                        "events and decisions wait until the database takes them: %s", error
                    )
                return
