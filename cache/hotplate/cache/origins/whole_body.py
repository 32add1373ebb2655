"""A file at a server without ranges: one stream, from which threads read their parts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from hotplate.cache.errors import OriginUnavailable
from hotplate.cache.origins.blob_source import OnProgress, ignore
from hotplate.cache.origins.http_client import HttpResponse

_PATIENCE_S = 0.3
"""How long the stream waits for a reader of the next part before it skips that."""


class WholeBody:
    """Parts are read in the order in which they come; a part that has passed starts a new
    stream."""

    def __init__(
        self, begin: Callable[[], AbstractContextManager[HttpResponse]], size_bytes: int
    ) -> None:
        self._begin = begin
        self._size_bytes = size_bytes
        self._turn = threading.Condition()
        self._waiting: list[int] = []
        self._reading = False
        self._at = 0
        self._stream: HttpResponse | None = None
        self._undo = contextlib.ExitStack()

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        """Raises OriginUnavailable when the stream ends before that part does."""
        with self._turn:
            self._waiting.append(offset)
            while not self._turn.wait_for(
                lambda: not self._reading and offset == self._at, _PATIENCE_S
            ):
                if not self._reading and offset == self._nearest():
                    break
            self._waiting.remove(offset)
            self._reading = True
        try:
            self._read(offset, view, on_progress)
        except BaseException:  # also when interrupted: cleaned up, and raised again
            self._end()
            raise
        finally:
            with self._turn:
                self._reading = False
                self._turn.notify_all()

    def __del__(self) -> None:
        """Ends the stream of a fetch that was given up, of which nothing else tells."""
        self._end()

    def _nearest(self) -> int:
        """The wanted part that is cheapest to reach."""
        return min(self._waiting, key=lambda offset: (offset < self._at, offset))

    def _read(self, offset: int, view: memoryview, on_progress: OnProgress) -> None:
        if self._stream is None or offset < self._at:
            self._end()
            self._stream = self._undo.enter_context(self._begin())
        skipped = self._stream.skip(offset - self._at, on_progress)
        self._at += skipped
        got = self._stream.read_into(view, lambda count: on_progress(skipped + count))
        self._at += got
        if got < len(view):
            raise OriginUnavailable(f"the file ended after {self._at} bytes")
        if self._at == self._size_bytes:
            self._end()

    def _end(self) -> None:
        self._undo.close()
        self._stream = None
        self._at = 0
