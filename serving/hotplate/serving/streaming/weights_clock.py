"""When this process's weights were loaded: the `weights` phase of a cold start."""

from __future__ import annotations

import threading
from typing import NamedTuple

from hotplate.serving.streaming.start_clock import unix_now


class WeightsSpan(NamedTuple):
    """From the first streamed file's opening to the end of the last wait."""

    start: float
    """Unix seconds."""
    end: float
    """Unix seconds."""
    size_bytes: int
    """Of all streamed files that were opened, each once."""


class WeightsClock:
    """Notes openings and waits, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start: float | None = None
        self._end = 0.0
        self._sizes: dict[str, int] = {}

    def opened(self, path: str, size_bytes: int) -> None:
        """A streamed file was opened."""
        with self._lock:
            if self._start is None:
                self._start = unix_now()
            self._end = unix_now()
            self._sizes[path] = size_bytes

    def waited(self) -> None:
        """A wait for bytes has ended."""
        with self._lock:
            self._end = unix_now()

    def span(self) -> WeightsSpan | None:
        """None before the first opening."""
        with self._lock:
            if self._start is None:
                return None
            return WeightsSpan(self._start, self._end, sum(self._sizes.values()))


clock = WeightsClock()
"""The process's own."""


def weights_span() -> WeightsSpan | None:
    """(start, end, size_bytes) of this process's weights so far; None if nothing was streamed."""
    return clock.span()
