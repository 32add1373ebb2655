"""Whether a control plane serves, and whether it is the one that acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from hotplate.platform.errors import NoLeader, StoreFailed
from hotplate.platform.store.parts import Store

STORE_S = 2.0
"""How long the store may take."""


class HealthRoutes:
    def __init__(
        self,
        store: Store,
        ready: Callable[[], bool],
        epoch: Callable[[], int],
        *,
        alone: bool = False,
        waits: bool = False,
    ) -> None:
        """`ready`: whether what it does is done; `epoch`: the last one that it knows. `alone`:
        nobody but `/readyz` is to tell that it does not serve yet, so it lives when it answers.
        `waits`: another control plane acts."""
        self._store = store
        self._alone, self._waits = alone, waits
        self._ready = ready
        self._epoch = epoch

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self.healthz), web.get("/readyz", self.readyz)]

    async def readyz(self, request: web.Request) -> web.Response:
        """200 when it acts and the store answers: from then on the API serves."""
        if self._waits:
            raise NoLeader("this control plane waits, and another one acts; ask that one")
        await self._ask_store()
        return web.json_response({"status": "ok"})

    async def healthz(self, request: web.Request) -> web.Response:
        """200 when the store answers, and, where this one acts, a gateway is there to serve what
        is deployed. It is answered soon, however slow the store is: whoever asks takes silence for
        a process that hangs, and ends it."""
        if not self._alone:
            await self._ask_store()
        leads = self._store.database.epoch is not None
        about = {"leader": leads, "epoch": self._epoch()}
        if not self._ready():
            status = 200 if self._alone else 503
            return web.json_response({"status": "starting", **about}, status=status)
        return web.json_response({"status": "ok", **about})

    async def _ask_store(self) -> None:
        """Raises StoreFailed."""
        try:
            async with asyncio.timeout(STORE_S):
                await self._store.run(self._store.learnt.get, "healthz")
        except TimeoutError:
            raise StoreFailed(f"the database has not answered for {STORE_S:g} s") from None
