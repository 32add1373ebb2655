"""Callers of a deployment, who count what they were answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.patience import PATIENCE_S, until
from tests.support.services.bentos import NAMESPACES, NUMBERS


class Refused(Exception):
    """A deployment's answer was not 200."""

    def __init__(self, what: str, code: str = "") -> None:
        """`code`: which error of ours it was."""
        super().__init__(what)
        self.code = code


def process_of(me: int) -> int:
    """The process here that calls itself so (`bentos.IMAGE`), in a namespace of processes or not.

    0 where it has ended.
    """
    inside = me & (1 << NUMBERS) - 1
    namespace = me >> NUMBERS & (1 << NAMESPACES) - 1
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            numbers = status.read_text().partition("NSpid:")[2].split("\n")[0].split()
            if (
                int(numbers[-1]) == inside
                and status.with_name("ns").joinpath("pid").stat().st_ino == namespace
            ):
                return int(numbers[0])
    return 0


async def call(url: str, **fields: Any) -> Any:
    """POST the fields as JSON on a connection of its own; what is answered, as JSON or text."""
    limit = aiohttp.ClientTimeout(PATIENCE_S)
    async with aiohttp.ClientSession(timeout=limit) as http, http.post(url, json=fields) as answer:
        if answer.status != 200:
            text = await answer.text()
            raise Refused(f"{url}: {answer.status} {text}", _code(text))
        is_json = answer.content_type == "application/json"
        return await (answer.json() if is_json else answer.text())


def _code(text: str) -> str:
    """Of an error of ours; empty where it is none."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"]["code"])
    return ""


class Tasks:
    """The tasks of one endpoint, over plain HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def submit(self, **fields: Any) -> str:
        """Its id."""
        task_id: str = (await call(f"{self._url}/submit", **fields))["task_id"]
        return task_id

    async def reached(self, task_id: str, status: str) -> None:
        """Returns when it has that status, also where nobody answers in between."""

        async def is_there() -> bool:
            with suppress(aiohttp.ClientError, ValueError, KeyError):
                said = json.loads(await self._get("status", task_id))
                return bool(said["status"] == status)
            return False

        await until(is_there)

    async def result(self, task_id: str) -> Any:
        """As JSON, also that of one that has failed."""
        return json.loads(await self.file(task_id))

    async def file(self, task_id: str) -> bytes:
        """The result as it comes."""
        return await self._get("get", task_id)

    async def _get(self, what: str, task_id: str) -> bytes:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self._url}/{what}", params={"task_id": task_id}) as answer,
        ):
            return await answer.read()


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
