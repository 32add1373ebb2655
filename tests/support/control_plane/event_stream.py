"""A reader of server-sent events, as browsers are: an event counts when it has come whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientResponse, ClientSession

from tests.support.patience import PATIENCE_S

STREAM = "/api/v1/hotplate/stream"


@dataclass(frozen=True)
class Told:
    id: str
    name: str
    data: Any


class EventStream:
    """One connection."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response
        self.comments = 0

    async def next(self) -> Told:
        """The next event. Raises EOFError at the end, TimeoutError where none comes."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                fields = await self._block()
                if "data" in fields:
                    data = json.loads(fields["data"])
                    return Told(fields.get("id", ""), fields.get("event", ""), data)

    async def until(self, name: str) -> Told:
        """The next event of that name; others are passed over."""
        while True:
            told = await self.next()
            if told.name == name:
                return told

    async def rest(self) -> bytes:
        return await self.response.read()

    async def _block(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        while True:
            line = await self.response.content.readline()
            if not line.endswith(b"\n"):
                raise EOFError
            if line == b"\n":
                return fields
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "":
                self.comments += 1
            fields[name] = value


@asynccontextmanager
async def streaming(
    http: ClientSession, topics: str, last_id: str = "", **headers: str
) -> AsyncIterator[EventStream]:
    """Follow these topics, from the last event on that was got."""
    headers |= {"Last-Event-ID": last_id} if last_id else {}
    async with http.get(STREAM, params={"topics": topics}, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield EventStream(response)
