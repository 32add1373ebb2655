"""A clock that jumps from event to event."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class VirtualTime:
    """Events in the order of their times, and of their making where these are the same."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the start."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Calls `event` at that time, or now if it is past."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        self.at(self.now + delay_s, event)

    def step(self) -> bool:
        """Jumps to the next event and calls it; False when there is none."""
        if not self._events:
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True
