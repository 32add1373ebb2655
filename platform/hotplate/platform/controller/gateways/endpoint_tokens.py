"""The tokens that gateways and agents know, those of callers of protected deployments and those for
the metrics: read when they have changed, and noted when they were used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from hotplate.machine.access.metrics_reader import MetricsReader
from hotplate.platform.controller.gateways.route_links import Tokens
from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store

log = logging.getLogger("hotplate.controller")

RETRY_S = 2.0


class EndpointTokens:
    def __init__(
        self,
        store: Store,
        wake: Callable[[], None],
        readers_read: Callable[[Sequence[MetricsReader]], None],
    ) -> None:
        """`wake` is called when they are to be read, `readers_read` with those for the metrics."""
        self._store = store
        self._wake = wake
        self._readers_read = readers_read
        self._stale = True
        self._noting: set[asyncio.Task[None]] = set()
        self.accepted: Tokens | None = None
        """By organization; None until they were read: without them nobody may be let in."""
        self.readers: tuple[MetricsReader, ...] = ()
        self.ends: Mapping[str, Sequence[float]] = {}
        """When tokens of any scope expire, by organization; the first one first."""

    def changed(self) -> None:
        """They are others in the store now."""
        self._stale = True
        self._wake()

    async def read(self) -> None:
        """Reads them, if they have changed."""
        if not self._stale:
            return
        self._stale = False
        try:
            self.readers = await self._store.run(self._store.tokens.metrics_readers)
            self.ends = await self._store.run(self._store.tokens.ends)
            self.accepted = await self._store.run(self._store.tokens.accepted)
        except StoreFailed as error:
            log.error("the tokens cannot be read: %s", error)
            asyncio.get_running_loop().call_later(RETRY_S, self.changed)
        else:
            self._readers_read(self.readers)

    def used(self, digests: Sequence[str]) -> None:
        """Notes that they were used. Nobody waits for it."""
        noting = asyncio.create_task(self._note_use(digests))
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)

    async def _note_use(self, digests: Sequence[str]) -> None:
        now = datetime.now(UTC)
        try:
            await self._store.run(self._store.tokens.used, now, digests=digests)
        except StoreFailed as error:
            log.warning("it is not kept which tokens callers used: %s", error)
