"""Callers that ask again as soon as they have their answer, each on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Self

from tests.support.gateway.callers import Answer, Caller


class Load:
    """`callers` closed loops of `POST /work`, until its block ends. Times in loop seconds."""

    def __init__(self, port: int, callers: int, *, per_connection: int = 1_000_000) -> None:
        self.answers: list[tuple[float, Answer]] = []
        self.failures: list[tuple[float, Exception]] = []
        self._port = port
        self._count = callers
        self._per_connection = per_connection
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    @property
    def now(self) -> float:
        return self._loop.time()

    @property
    def answered(self) -> int:
        return sum(answer.status == 200 for _, answer in self.answers)

    @property
    def failed(self) -> int:
        """Requests that got no answer, or another than 200."""
        return len(self.answers) - self.answered + len(self.failures)

    @property
    def bodies(self) -> list[bytes]:
        return [answer.body for _, answer in self.answers if answer.status == 200]

    def has(self, count: int) -> bool:
        """Whether so many good answers have come."""
        return self.answered >= count

    def since(self, time: float) -> list[float]:
        """When good answers came after that time."""
        return [at for at, answer in self.answers if at > time and answer.status == 200]

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_on()) for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Its callers leave."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask_on(self) -> None:
        while True:
            try:
                caller = await Caller.to(self._port)
            except OSError as error:
                self.failures.append((self.now, error))
                await asyncio.sleep(0.02)
                continue
            try:
                await self._ask(caller)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.failures.append((self.now, error))
            finally:
                caller.leave()

    async def _ask(self, caller: Caller) -> None:
        for _ in range(self._per_connection):
            answer = await caller.ask("/work", method="POST", body=b"x")
            self.answers.append((self.now, answer))
            if answer.headers.get("connection") == "close":
                return
