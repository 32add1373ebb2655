"""Tells the node's agent who may read its metrics: at once when that has changed, and again and
again, since an agent that was started anew knows nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError
from hotplate.machine.access.metrics_reader import MetricsReader

AGAIN_S = 15.0

log = logging.getLogger("hotplate.control-plane")


class AgentReaders:
    """Those of one agent."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._readers: Sequence[MetricsReader] | None = None
        """None until they were read."""
        self._changed = asyncio.Event()

    def install(self, readers: Sequence[MetricsReader]) -> None:
        """These are to be told from now on."""
        self._readers = readers
        self._changed.set()

    async def run(self) -> None:
        """Tells them until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), AGAIN_S)
            self._changed.clear()
            if self._readers is None:
                continue
            try:
                await self._agent.set_readers(self._readers)
            except CacheError as error:
                log.debug("the agent does not know who may read its metrics: %s", error)
