"""A timer that fires once, at the earliest time that it was set to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """One timer for many deadlines: to set it later than it is already set costs nothing."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._on_timer = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Has it fire at `at` (the loop's time) at the latest."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_timer()
