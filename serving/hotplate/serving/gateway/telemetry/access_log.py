"""One line per response, if an operator wants it. Lines are kept for a moment and written together.

    time route caller request-id method path status bytes wait_s total_s replica

Times are UTC and seconds. `-` stands for a missing value: there is no replica of a response of the
gateway's own, and no status of a caller that left first. The query, which may hold secrets, is left
out. If the file is moved away, a new one is begun.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)

FLUSH_S = 1.0
FLUSH_LINES = 512


class Entry(NamedTuple):
    """What one line says."""

    route: str
    caller: bytes
    """The caller's address."""
    request_id: bytes = b"-"
    method: bytes = b"-"
    path: bytes = b"-"
    status: int = 0
    """0 = the caller left before there was a response."""
    size_bytes: int = 0
    """Of the response's body, as far as it was sent."""
    wait_s: float | None = None
    """Time until a replica took it; None = no replica did."""
    total_s: float | None = None
    replica: str = ""


class AccessLog:
    """The file. A line that cannot be written is lost, which is logged once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._flush: asyncio.TimerHandle | None = None
        self._descriptor = -1
        self._failing = False

    def note(self, entry: Entry) -> None:
        self._lines.append(
            b"%b %b %b %b %b %b %b %d %b %b %b\n"
            % (
                datetime.now(UTC).isoformat(timespec="milliseconds").encode(),
                entry.route.encode(),
                entry.caller,
                entry.request_id.replace(b" ", b"_"),
                entry.method,
                entry.path,
                b"%d" % entry.status if entry.status else b"-",
                entry.size_bytes,
                _seconds(entry.wait_s),
                _seconds(entry.total_s),
                entry.replica.encode() or b"-",
            )
        )
        if len(self._lines) >= FLUSH_LINES:
            self.flush()
        elif self._flush is None:
            self._flush = self._loop.call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        lines = b"".join(self._lines)
        self._lines.clear()
        try:
            self._open()
            os.write(self._descriptor, lines)
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._failing = True
                log.warning("access log %s: %s; lines are lost until it works", self._path, error)

    def close(self) -> None:
        if self._lines:
            self.flush()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        """Opens the file, and again if another one, or none, is at the path now."""
        if self._descriptor >= 0:
            try:
                there = self._path.stat()
            except FileNotFoundError:
                there = None
            here = os.fstat(self._descriptor)
            if there is not None and os.path.samestat(there, here):
                return
            os.close(self._descriptor)
            self._descriptor = -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o640)


def _seconds(value: float | None) -> bytes:
    return b"-" if value is None else b"%.3f" % value
