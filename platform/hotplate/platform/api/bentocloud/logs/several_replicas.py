"""The logs of several replicas, followed at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Protocol

from hotplate.deploy.errors import DeployError

AHEAD = 16
"""Pieces that are read before the client has taken the ones before them."""


class Opened(Protocol):
    """How a log is followed."""

    def __call__(self, replica: str, *, first: bool) -> AsyncGenerator[str, None]: ...


class FollowedLogs:
    """To be closed. A piece is of one replica, and each one's are in their order."""

    def __init__(self, opened: Opened) -> None:
        """`opened` follows a replica's log; the `first` is of those that were there already."""
        self._opened = opened
        self._pieces = asyncio.Queue[str](AHEAD)
        self._following: dict[str, asyncio.Task[None]] = {}

    def follow(self, replicas: Iterable[str]) -> None:
        """These are there now: what others still print is read to its end."""
        for replica in replicas:
            if replica not in self._following:
                reading = self._read(replica, first=not self._following)
                self._following[replica] = asyncio.create_task(reading, name=f"log of {replica}")

    async def come_within(self, wait_s: float) -> AsyncGenerator[str, None]:
        """What comes in so long."""
        now = asyncio.get_running_loop().time
        ends = now() + wait_s
        while (left := ends - now()) > 0:
            try:
                piece = await asyncio.wait_for(self._pieces.get(), left)
            except TimeoutError:
                return
            yield piece

    async def close(self) -> None:
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def _read(self, replica: str, *, first: bool) -> None:
        try:
            async with aclosing(self._opened(replica, first=first)) as log:
                async for piece in log:
                    await self._pieces.put(piece)
        except DeployError:  # it has no log yet, or no longer
            self._following.pop(replica, None)
