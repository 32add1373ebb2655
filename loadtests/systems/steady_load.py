"""Callers of one deployment that never stop, and when each failure happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.support.services.calling import Refused, call


@dataclass(frozen=True)
class Failure:
    """Times are loop seconds."""

    began: float
    ended: float
    what: str


@dataclass
class SteadyLoad:
    """What has been sent so far, and what failed since the last look."""

    sent: int = 0
    failures: list[Failure] = field(default_factory=list)

    def take(self) -> list[Failure]:
        """The failures since the last call."""
        taken, self.failures = self.failures, []
        return taken


@asynccontextmanager
async def steady_load(callers: int, url: str, **fields: object) -> AsyncIterator[SteadyLoad]:
    """Each caller asks again as soon as it has its answer, for the time of the block."""
    load, now = SteadyLoad(), asyncio.get_running_loop().time

    async def ask_on() -> None:
        while True:
            began = now()
            load.sent += 1
            try:
                await call(url, **fields)
            except (Refused, aiohttp.ClientError, TimeoutError) as error:
                load.failures.append(Failure(began, now(), repr(error)))
                await asyncio.sleep(0.1)

    askers = [asyncio.create_task(ask_on()) for _ in range(callers)]
    try:
        yield load
    finally:
        for asker in askers:
            asker.cancel()
        await asyncio.gather(*askers, return_exceptions=True)
