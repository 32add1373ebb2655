"""Refused tries, as the audit keeps them: those of one minute that are alike are one line, so that
nobody fills a disk by being refused."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

from aiohttp import web

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.audit import ACTOR, Actor, Audit

log = logging.getLogger("hotplate.api")

MINUTE_S = 60.0
LINES = 60
"""Lines of refused tries in a minute, at most: whoever changes their address is counted, too."""


@dataclass
class _Kind:
    began_at: float
    count: int = 1
    line_id: int | None = None


class RefusedTries:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._kinds: OrderedDict[tuple[str, str, str], _Kind] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, action: str, request: web.Request, reason: str) -> None:
        """Notes that a request was refused. Nobody waits for it."""
        actor, now = ACTOR.get() or Actor(), asyncio.get_running_loop().time()
        while self._kinds and next(iter(self._kinds.values())).began_at <= now - MINUTE_S:
            self._kinds.popitem(last=False)
        of = (actor.address, actor.name, action)
        if (kind := self._kinds.get(of)) is not None:
            kind.count += 1
        elif len(self._kinds) < LINES:
            kind = self._kinds[of] = _Kind(now)
        else:
            return
        what = f"{request.method} {request.path}"
        writing = asyncio.create_task(self._write(kind, actor, action, what, reason))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, kind: _Kind, actor: Actor, action: str, what: str, reason: str) -> None:
        try:
            if kind.line_id is not None:
                await self._audit.run(self._audit.count, kind.line_id, kind.count)
            elif kind.count == 1:
                refuse = self._audit.refuse
                line_id = await self._audit.run(refuse, actor, action, what, {"reason": reason})
                kind.line_id = line_id
        except StoreFailed as error:
            log.warning("it is not kept that %s was refused: %s", what, error)
