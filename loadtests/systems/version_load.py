"""Callers of a deployment with a canary: requests at a rate, streams, tasks, and who answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.support.services.calling import Refused, Tasks

USERS = 200
PIECES = 40
TASK_S = 1.0

Call = Callable[[], Awaitable[None]]


@dataclass
class VersionLoad:
    """What has come so far."""

    requests: int = 0
    streams: int = 0
    tasks: int = 0
    answered: dict[str, int] = field(default_factory=dict)
    """By version, of the requests at a rate; "" = there was no canary."""
    failures: list[str] = field(default_factory=list)


@asynccontextmanager
async def version_load(
    url: str, rate_per_s: float, sources: Mapping[str, str]
) -> AsyncIterator[VersionLoad]:
    """Asks for the time of the block. `sources` is what a version's bento calls itself."""
    load = VersionLoad()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as http:
        callers = _Callers(http, url, sources, load)
        async with asyncio.TaskGroup() as group:
            done = asyncio.Event()
            group.create_task(callers.at_rate(rate_per_s, done, group))
            for one in (callers.stream, callers.stream, callers.simmer, callers.simmer):
                group.create_task(callers.again_and_again(one, done))
            try:
                yield load
            finally:
                done.set()


class _Callers:
    def __init__(
        self, http: aiohttp.ClientSession, url: str, sources: Mapping[str, str], load: VersionLoad
    ) -> None:
        self._http = http
        self._url = url
        self._sources = sources
        self._load = load
        self._rng = random.Random(1)

    async def at_rate(
        self, rate_per_s: float, done: asyncio.Event, group: asyncio.TaskGroup
    ) -> None:
        """Each when it is due, however slow the answers are."""
        now = asyncio.get_running_loop().time
        began, number = now(), 0
        while not done.is_set():
            group.create_task(self._noting(self.cook))
            number += 1
            await asyncio.sleep(began + number / rate_per_s - now())

    async def again_and_again(self, call: Call, done: asyncio.Event) -> None:
        while not done.is_set():
            await self._noting(call)

    async def _noting(self, call: Call) -> None:
        try:
            await call()
        except (Refused, aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
            self._load.failures.append(repr(error))
            await asyncio.sleep(0.1)

    async def cook(self) -> None:
        user = f"user-{self._rng.randrange(USERS)}"
        self._load.requests += 1
        async with self._http.post(
            f"{self._url}/cook",
            params={"user": user},
            headers={"X-User": user},
            json={"seconds": 0.02},
        ) as answer:
            if answer.status != 200:
                raise Refused(f"{answer.status} {await answer.text()}")
            version = answer.headers.get("Hotplate-Version", "")
            self._is(version, (await answer.json())["version"])
            self._load.answered[version] = self._load.answered.get(version, 0) + 1

    async def stream(self) -> None:
        self._load.streams += 1
        fields = {"pieces": PIECES, "pause_s": 0.05}
        async with self._http.post(f"{self._url}/stream", json=fields) as answer:
            text = await answer.text()
            if answer.status != 200 or text.count("piece") != PIECES:
                raise Refused(f"{answer.status} {text[-300:]}")

    async def simmer(self) -> None:
        self._load.tasks += 1
        fields = {"seconds": TASK_S}
        async with self._http.post(f"{self._url}/simmer/submit", json=fields) as answer:
            if answer.status != 200:
                raise Refused(f"{answer.status} {await answer.text()}")
            version = answer.headers.get("Hotplate-Version", "")
            number = (await answer.json())["task_id"]
        tasks = Tasks(f"{self._url}/simmer")
        await tasks.reached(number, "completed")
        self._is(version, (await tasks.file(number)).decode())

    def _is(self, version: str, said: str) -> None:
        """Without a canary there is one version only, and nothing is said of it."""
        if version and self._sources[version] != said:
            raise ValueError(f"version {version} is {said}")
