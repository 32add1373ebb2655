"""A signal, from any thread, that all peers are to be greeted at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class ChangeSignal:
    """Wakes its listeners on the event loop. Only `set` is thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: set[asyncio.Event] = set()

    def set(self) -> None:
        """Sets the event of each listener soon; does nothing once the loop has ended."""
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
