"""Refused tries, as the audit keeps them: those of one minute that are alike are one line, so that
nobody fills a disk by being refused. Alike are a known caller's with one token in one organization
that ask the same, and those of one address of which nobody knows who calls."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace

from aiohttp import web

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.audit import ACTOR, Actor, Audit

log = logging.getLogger("hotplate.api")

MINUTE_S = 60.0
LINES = 60
"""Lines of refused tries of one caller in a minute, and of all who are not known, at most: whoever
changes their address fills no disk, and hides nobody else's tries."""


@dataclass
class _Kind:
    began_at: float
    count: int = 0
    written: int = 0
    """How many of them its line tells."""
    is_writing: bool = False
    line_id: int | None = None


class RefusedTries:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._kinds: OrderedDict[tuple[Actor, str, str], _Kind] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, action: str, request: web.Request, reason: str) -> None:
        """Notes that a request was refused. Nobody waits for it."""
        actor, now = ACTOR.get() or Actor(), asyncio.get_running_loop().time()
        while self._kinds and next(iter(self._kinds.values())).began_at <= now - MINUTE_S:
            self._kinds.popitem(last=False)
        what = f"{request.method} {request.path}"
        of = (replace(actor, request_id=""), action, what if actor.name else "")
        kind = self._kinds.get(of)
        if kind is None:
            if sum(other.name == actor.name for other, _, _ in self._kinds) >= LINES:
                return
            kind = self._kinds[of] = _Kind(now)
        kind.count += 1
        if kind.is_writing:  # which writes this one too: a flood is one write at a time
            return
        kind.is_writing = True
        writing = asyncio.create_task(self._write(kind, actor, action, what, reason))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, kind: _Kind, actor: Actor, action: str, what: str, reason: str) -> None:
        try:
            while kind.written < kind.count:
                count = kind.count
                if kind.line_id is None:
                    kind.line_id = await self._audit.run(
                        self._audit.refuse, actor, action, what, {"reason": reason}, count
                    )
                else:
                    await self._audit.run(self._audit.count, kind.line_id, count)
                kind.written = count
        except StoreFailed as error:
            log.warning("it is not kept that %s was refused: %s", what, error)
        finally:
            kind.is_writing = False
