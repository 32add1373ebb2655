"""Callers of a deployment, who count what they were answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

ANSWER_S = 40.0


class Refused(Exception):
    """A deployment's answer was not 200."""


async def call(url: str, **fields: Any) -> Any:
    """POST the fields as JSON on a connection of its own; what is answered, as JSON or text."""
    limit = aiohttp.ClientTimeout(ANSWER_S)
    async with aiohttp.ClientSession(timeout=limit) as http, http.post(url, json=fields) as answer:
        if answer.status != 200:
            raise Refused(f"{url}: {answer.status} {await answer.text()}")
        is_json = answer.content_type == "application/json"
        return await (answer.json() if is_json else answer.text())


class Load:
    """What several callers were answered, who each ask again as soon as they have an answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.failures: list[str] = []


@asynccontextmanager
async def under_load(callers: int, url: str, **fields: Any) -> AsyncIterator[Load]:
    """Ask again and again while the block runs; each caller gets its last answer."""
    load, done = Load(), asyncio.Event()

    async def ask_on() -> None:
        while not done.is_set():
            try:
                load.answers.append(await call(url, **fields))
            except (Refused, aiohttp.ClientError, TimeoutError) as error:
                load.failures.append(repr(error))
                await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(ask_on())
        try:
            yield load
        finally:
            done.set()
