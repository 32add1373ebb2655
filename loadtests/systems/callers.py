"""Callers that note how each of their requests ended, and retry none."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from loadtests.systems.replicas import HOST

ENDS_S = 30.0
"""A request that has not ended by then counts as silent."""
Outcome = Literal["answered", "refused", "cut", "silent"]
Method = Literal["GET", "POST"]


@dataclass
class Ledger:
    """Every request by its id, which its handler records when it begins."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)

    def count(self, method: Method) -> Counter[Outcome]:
        return Counter(self.outcomes[i] for i, made in self.methods.items() if made == method)

    @property
    def without_end(self) -> int:
        return len(self.methods) - len(self.outcomes) + self.outcomes_of("silent")

    def outcomes_of(self, outcome: Outcome) -> int:
        return sum(found == outcome for found in self.outcomes.values())


@asynccontextmanager
async def calling(
    port: int, work_s: float, callers: int, methods: tuple[Method, ...] = ("GET", "POST")
) -> AsyncIterator[Ledger]:
    """Closed-loop callers that take the methods in turn; at the end their requests are awaited."""
    ledger, stop, numbers = Ledger(), asyncio.Event(), itertools.count(1)

    async def call_on() -> None:
        connection: Connection | None = None
        while not stop.is_set():
            number = next(numbers)
            request, method = f"q{number}", methods[number % len(methods)]
            ledger.methods[request] = method
            try:
                connection = connection or await connect(port)
                async with asyncio.timeout(ENDS_S):
                    status, keeps = await ask(connection, method, work_s, request)
                ledger.outcomes[request] = "answered" if status == 200 else "refused"
            except TimeoutError:
                ledger.outcomes[request], keeps = "silent", False
            except (OSError, asyncio.IncompleteReadError):
                ledger.outcomes[request], keeps = "cut", False
            if not keeps and connection is not None:
                connection[1].transport.abort()
                connection = None
        if connection is not None:
            connection[1].close()

    tasks = [asyncio.create_task(call_on()) for _ in range(callers)]
    try:
        yield ledger
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int) -> Connection:
    return await asyncio.open_connection(HOST, port)


async def ask(
    connection: Connection, method: Method, work_s: float, request: str
) -> tuple[int, bool]:
    """`(status, whether the connection is kept)` of one request. Raises OSError and
    IncompleteReadError when the connection ends before its answer has."""
    reader, writer = connection
    writer.write(
        f"{method} /work/{work_s}?id={request} HTTP/1.1\r\nHost: {HOST}\r\n"
        f"{'Content-Length: 0' if method == 'POST' else 'Accept: */*'}\r\n\r\n".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    await reader.readexactly(int(length or 0))
    return int(head.split()[1]), "connection: close" not in head
