"""Looks after a route's callers, each once per round, a few at a time: ten thousand at once would
keep the others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Protocol

from hotplate.serving.gateway.proxy.alarm import Alarm

PARTS = 16
"""Of a round."""
PART_LEAST = 64
"""Callers that are worth a part of their own."""


class Swept(Protocol):
    """A connection."""

    def sweep(self, now: float) -> None:
        """Ends it if it has been idle, or has been slow, for too long."""


class Sweep:
    """Goes through a set that others add to and take from."""

    def __init__(self, callers: Set[Swept], every_s: Callable[[], float]) -> None:
        self._callers = callers
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._ring)
        self._begun_at = 0.0
        self._left: list[Swept] = []
        """Of this round."""

    def watch(self) -> None:
        """There is a caller: a round follows."""
        if not self._left:
            self._alarm.set(self._loop.time() + self._every_s())

    def stop(self) -> None:
        self._alarm.cancel()
        self._left.clear()

    def _ring(self) -> None:
        now = self._loop.time()
        left = self._left
        if not left:
            left.extend(self._callers)
            self._begun_at = now
        for _ in range(min(len(left), max(PART_LEAST, len(self._callers) // PARTS))):
            caller = left.pop()
            if caller in self._callers:
                caller.sweep(now)
        if left:
            self._alarm.set(now + self._every_s() / PARTS)
        elif self._callers:
            self._alarm.set(max(now, self._begun_at + self._every_s()))
