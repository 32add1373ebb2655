"""Whether a control plane serves, and whether it is the one that acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.parts import Store

STORE_S = 2.0
"""How long the store may take."""


class HealthRoutes:
    def __init__(self, store: Store, ready: Callable[[], bool], epoch: Callable[[], int]) -> None:
        """`ready`: whether what it does is done; `epoch`: the last one that it knows."""
        self._store = store
        self._ready = ready
        self._epoch = epoch

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self.healthz)]

    async def healthz(self, request: web.Request) -> web.Response:
        """200 when the store answers, and, where this one acts, a gateway is there to serve what
        is deployed. It is answered soon, however slow the store is: whoever asks takes silence for
        a process that hangs, and ends it."""
        try:
            async with asyncio.timeout(STORE_S):
                await self._store.run(self._store.learnt.get, "healthz")
        except TimeoutError:
            raise StoreFailed(f"the database has not answered for {STORE_S:g} s") from None
        leads = self._store.database.epoch is not None
        about = {"leader": leads, "epoch": self._epoch()}
        if not self._ready():
            return web.json_response({"status": "starting", **about}, status=503)
        return web.json_response({"status": "ok", **about})
