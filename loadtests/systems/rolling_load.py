"""Callers of a deployment while its revisions change; an answer names the revision that gave it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.services.bentos import IMAGE
from tests.support.services.calling import Refused, Tasks

ANSWER_S = 60.0
PIECES = 20

PAIR = (
    IMAGE
    + '''

VERSION = "v1"


@bentoml.service(image=image, traffic={"concurrency": 4})
class Back:
    @bentoml.api
    def version(self) -> str:
        return VERSION


@bentoml.service(image=image, traffic={"concurrency": 4})
class Front:
    back = bentoml.depends(Back)

    @bentoml.api
    async def ask(self, seconds: float = 0.0) -> dict:
        """Calls before and after a while: the replica drains meanwhile."""
        first = await self.back.to_async.version()
        await asyncio.sleep(seconds)
        return {"front": VERSION, "back": [first, await self.back.to_async.version()]}
'''
)


@dataclass
class Load:
    """What happened to the requests to one deployment."""

    sent: int = 0
    failures: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    during: str = "the first"
    """What is rolled out."""
    longest_gap_s: float = 0.0
    """The longest time in which no short request was answered."""
    _answered_at: float = field(default_factory=time.monotonic)

    def answered(self) -> None:
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._answered_at)
        self._answered_at = now


Caller = Callable[[aiohttp.ClientSession, Load], Awaitable[None]]


def short_caller(url: str) -> list[Caller]:
    async def short(http: aiohttp.ClientSession, load: Load) -> None:
        answer = await _answer(http, f"{url}/cook", seconds=0.02)
        load.versions.add(answer["version"])
        load.answered()

    return [short]


def kitchen_callers(url: str) -> list[Caller]:
    """Two callers with short requests, one with long ones, and one with streams."""

    async def long(http: aiohttp.ClientSession, load: Load) -> None:
        await _answer(http, f"{url}/cook", seconds=1.5)

    async def stream(http: aiohttp.ClientSession, load: Load) -> None:
        text = await _answer(http, f"{url}/stream", pieces=PIECES, pause_s=0.05)
        if text.count("piece") != PIECES:
            raise Failed(f"a stream ended after {text.count('piece')} of {PIECES} pieces")

    return [*short_caller(url) * 2, long, stream]


def task_caller(url: str) -> list[Caller]:
    """One that submits a task and comes back for its result."""
    tasks = Tasks(f"{url}/simmer")

    async def simmer(_: aiohttp.ClientSession, load: Load) -> None:
        try:
            number = await tasks.submit(seconds=1.0)
            await tasks.reached(number, "completed")
        except (Refused, KeyError) as error:
            raise Failed(f"a task was not completed: {error!r}") from None
        load.versions.add((await tasks.file(number)).decode())

    return [simmer]


def pair_callers(url: str) -> list[Caller]:
    async def ask(http: aiohttp.ClientSession, load: Load, seconds: float = 0.0) -> None:
        answer = await _answer(http, f"{url}/ask", seconds=seconds)
        if {answer["front"]} != set(answer["back"]):
            raise Failed(f"one revision called another's service: {answer}")
        load.versions.add(answer["front"])
        load.answered()

    async def ask_slowly(http: aiohttp.ClientSession, load: Load) -> None:
        await ask(http, load, 2.0)

    return [ask, ask, ask_slowly, ask_slowly]


class Failed(Exception):
    """A request was not answered as it must be."""


async def _answer(http: aiohttp.ClientSession, url: str, **fields: Any) -> Any:
    async with http.post(url, json=fields) as answer:
        if answer.status != 200:
            raise Failed(f"{url}: {answer.status} {await answer.text()}")
        is_json = answer.content_type == "application/json"
        return await (answer.json() if is_json else answer.text())


@asynccontextmanager
async def under_load(callers: list[Caller]) -> AsyncIterator[Load]:
    """Each caller twice, on a connection that is kept and on fresh ones, while the block runs."""
    load, done = Load(), asyncio.Event()

    async def call_on(caller: Caller, keep: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keep)
        limit = aiohttp.ClientTimeout(ANSWER_S)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as http:
            while not done.is_set():
                load.sent += 1
                try:
                    await caller(http, load)
                except (Failed, aiohttp.ClientError, TimeoutError) as error:
                    load.failures.append(f"{load.during}: {error!r}")
                    await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for caller, keep in itertools.product(callers, (True, False)):
            group.create_task(call_on(caller, keep))
        try:
            yield load
        finally:
            done.set()
