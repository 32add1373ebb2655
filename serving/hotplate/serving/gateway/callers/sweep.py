"""Checks a route's callers, each once per round, a few at a time: to check ten thousand at once
would delay all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Protocol

from hotplate.serving.gateway.proxy.alarm import Alarm

PARTS = 16
"""Parts of a round."""
PART_LEAST = 64
"""Callers of one part at least."""


class Swept(Protocol):
    """A connection that is checked."""

    def sweep(self, now: float) -> None:
        """Closes the connection if it has been idle, or its caller slow, for too long."""


class Sweep:
    """Checks all members of a set, which may change meanwhile."""

    def __init__(self, callers: Set[Swept], every_s: Callable[[], float]) -> None:
        self._callers = callers
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._on_timer)
        self._begun_at = 0.0
        self._remaining: list[Swept] = []
        """The callers that this round has not reached."""

    def watch(self) -> None:
        """There is a caller: a round follows."""
        if not self._remaining:
            self._alarm.set(self._loop.time() + self._every_s())

    def stop(self) -> None:
        self._alarm.cancel()
        self._remaining.clear()

    def _on_timer(self) -> None:
        now = self._loop.time()
        remaining = self._remaining
        if not remaining:
            remaining.extend(self._callers)
            self._begun_at = now
        for _ in range(min(len(remaining), max(PART_LEAST, len(self._callers) // PARTS))):
            caller = remaining.pop()
            if caller in self._callers:
                caller.sweep(now)
        if remaining:
            self._alarm.set(now + self._every_s() / PARTS)
        elif self._callers:
            self._alarm.set(max(now, self._begun_at + self._every_s()))
