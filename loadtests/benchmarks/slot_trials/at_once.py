"""Calls and streams that all begin at once, and take 2 s each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from loadtests.benchmarks.slot_trials.pairs import ask, pairs, project
from loadtests.benchmarks.slot_trials.table import Row, beside
from loadtests.harness.bounds import at_most
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import installation
from loadtests.harness.report import median

CALLS, CHATS = 30, 10
ONE = {"scaling": {"min_replicas": 1, "max_replicas": 1}}
BODY = {"text": "hello"}
WAITS = """class Waits:
    @bentoml.api
    async def at_once(self, text: str) -> str:
        return text

    @bentoml.api
    async def wait(self, text: str) -> str:
        await asyncio.sleep(2)
        return text
"""
TALKS = """class Talks:
    @bentoml.api
    async def at_once(self, text: str) -> str:
        return text

    @bentoml.api
    async def chat(self, text: str) -> AsyncIterator[str]:
        for number in range(40):
            yield f"{number} "
            await asyncio.sleep(0.05)
"""


async def calls(folder: Path, quick: bool) -> Sequence[Row]:
    """How long all of them take."""
    source = project(folder / "waits", WAITS)
    async with installation(folder) as here:
        found = await pairs(here, source, {"Waits": {}}, _calls_s, 1 if quick else 7)
    figure = f"{CALLS} calls at once of 2 s, async: s"
    return [beside(figure, found, of_peer=at_most(1.15))]


async def chats(folder: Path, quick: bool) -> Sequence[Row]:
    """When each stream's first token comes, and how long all of them take."""
    source = project(folder / "talks", TALKS)
    async with installation(folder) as here:
        found = await pairs(here, source, {"Talks": ONE}, _chats_s, 1 if quick else 7)
    firsts = [(own[0], peer[0]) for own, peer in found]
    wholes = [(own[1], peer[1]) for own, peer in found]
    return [
        beside(f"{CHATS} streamed chats of 2 s: first token p50, s", firsts, ours=at_most(0.2)),
        beside("the same: all of them, s", wholes),
    ]


async def _calls_s(url: str) -> float:
    async with _warm(url) as session:
        began = time.perf_counter()
        await asyncio.gather(*(ask(session, f"{url}/wait", BODY) for _ in range(CALLS)))
        return time.perf_counter() - began


async def _chats_s(url: str) -> tuple[float, float]:
    """The median of the first tokens, and the end of the last stream."""
    async with _warm(url) as session:
        began = time.perf_counter()

        async def chat() -> float:
            async with session.post(f"{url}/chat", json=BODY) as answer:
                if answer.status != 200:
                    raise BenchmarkFailed(f"{url}: {answer.status} {await answer.text()}")
                await answer.content.readany()
                first_s = time.perf_counter() - began
                await answer.read()
                return first_s

        firsts_s = await asyncio.gather(*(chat() for _ in range(CHATS)))
        return median(firsts_s), time.perf_counter() - began


@asynccontextmanager
async def _warm(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for as many connections as are wanted, after one call."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await ask(session, f"{url}/at_once", BODY)
        yield session
