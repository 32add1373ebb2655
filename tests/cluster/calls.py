"""Callers of a deployment of `examples/hello`, and what they have had."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.cluster.layout import node_address
from tests.cluster.release import GATEWAY_PORT
from tests.support.gateway.callers import Answer, Caller

_AGAIN_S = 0.02
"""Between two tries to connect."""
CALLERS = 20
_CALM_S = 2.0
"""How long they are asked before something happens to them."""


@asynccontextmanager
async def calling(*callers: Awaitable[None]) -> AsyncIterator[None]:
    """They call until the block ends."""
    tasks = [asyncio.ensure_future(caller) for caller in callers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Calls:
    """What callers have had of one deployment. Times by `time.monotonic`."""

    host: str
    answered: list[float] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    told_to_leave: int = 0
    """Connections whose last answer said that it was the last."""

    def longest_gap_s(self) -> float:
        """The longest time without a good answer."""
        later = self.answered[1:]
        return max(
            (after - before for before, after in zip(self.answered, later, strict=False)), default=0
        )

    async def keep(self, address: str, port: int, every_s: float) -> None:
        """Asks as often on one connection, and on another once that one has ended."""
        while True:
            try:
                caller = Caller(*await asyncio.open_connection(address, port))
            except OSError as error:
                self._fail(error)
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                await self._ask_on(caller, every_s)
            except (OSError, EOFError) as error:
                self._fail(error)
            finally:
                caller.leave()

    async def come_anew(self, address: str, port: int, every_s: float) -> None:
        """Asks as often, each time on a connection of its own."""
        while True:
            await asyncio.sleep(every_s)
            try:
                caller = Caller(*await asyncio.open_connection(address, port))
                try:
                    self._take(await self._greet(caller, connection="close"))
                finally:
                    caller.leave()
            except (OSError, EOFError) as error:
                self._fail(error)

    async def _ask_on(self, caller: Caller, every_s: float) -> None:
        while True:
            answer = await self._greet(caller)
            self._take(answer)
            if answer.headers.get("connection") == "close":
                self.told_to_leave += 1
                return
            await asyncio.sleep(every_s)

    async def _greet(self, caller: Caller, **headers: str) -> Answer:
        caller.host = self.host
        given = {"method": "POST", "body": b'{"name": "Ann"}', "content_type": "application/json"}
        return await caller.ask("/greet", **given, **headers)

    def _take(self, answer: Answer) -> None:
        if answer.status == 200:
            self.answered.append(time.monotonic())
        else:
            self.failures.append((time.monotonic(), f"{answer.status} {answer.body[:200]!r}"))

    def _fail(self, error: Exception) -> None:
        self.failures.append((time.monotonic(), repr(error)))


@asynccontextmanager
async def calls_at(rate_per_s: float, host: str) -> AsyncIterator[Calls]:
    """Calls `/greet` through both nodes until the block ends: half of the callers keep their
    connections, the others come anew each time. A caller asks again a fixed pause after its
    answer, so that the rate is what was asked only as long as answers are fast."""
    calls, every_s = Calls(host), CALLERS / rate_per_s
    callers = []
    for number in range(CALLERS):
        come = calls.keep if number % 2 else calls.come_anew
        callers.append(come(node_address(1 + number // 2 % 2), GATEWAY_PORT, every_s))
    async with calling(*callers):
        await asyncio.sleep(_CALM_S)
        yield calls
