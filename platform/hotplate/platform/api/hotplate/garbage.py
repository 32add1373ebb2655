"""Our own route that removes what nobody wants, for operators."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

from aiohttp import web

from hotplate.platform.api.web.requests import body
from hotplate.platform.store.audit import Audit

PATH = "/api/v1/hotplate/gc"


@dataclass(frozen=True)
class Collected:
    """What was, or would be, removed."""

    manifests: int = 0
    blobs: int = 0
    environments: int = 0
    bytes: int = 0

    def plus(self, other: Collected) -> Collected:
        mine, others = asdict(self), asdict(other)
        return Collected(**{name: mine[name] + others[name] for name in mine})


class CollectsGarbage(Protocol):
    async def collect(self, *, dry_run: bool = False) -> Collected:
        """Once. Raises Busy."""


class GarbageRoutes:
    """It runs by itself too."""

    def __init__(self, collector: CollectsGarbage, audit: Audit) -> None:
        self._collector = collector
        self._audit = audit

    def routes(self) -> list[web.RouteDef]:
        return [web.post(PATH, self.collect)]

    async def collect(self, request: web.Request) -> web.Response:
        """`POST`: what was removed; with `dry_run` (in the body, or the query) what would be.
        Raises Busy."""
        fields = await body(request)
        asked = request.query.get("dry_run", "") in ("true", "1")
        dry_run = fields.flag("dry_run") if fields.has("dry_run") else asked
        collected = asdict(await self._collector.collect(dry_run=dry_run))
        if not dry_run:
            await self._audit.run(self._audit.record, "gc.run", "", collected)
        return web.json_response(collected)
