"""How any thread says that there is something new to tell the peers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class ChangeSignal:
    """Wakes those that listen on the event loop. `set` is thread-safe, the rest is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: set[asyncio.Event] = set()

    def set(self) -> None:
        """Soon sets the event of each that listens; does nothing once the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    @contextlib.contextmanager
    def listener(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever something has changed; the listener clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)

    def _wake(self) -> None:
        for event in self._listeners:
            event.set()
