"""The platform's own events: a file of JSON lines that its processes append to.

It stands beside the database and not in it: the supervisor writes it too, it can be read with the
control plane down, and it says that the database failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from hotplate.platform.log_format import events
from hotplate.platform.store.records import EventRecord

MAX_BYTES = 1 << 20
"""A file of this size is put aside, and the one that was aside goes: some ten thousand events."""

log = logging.getLogger("hotplate.event-log")


class EventLog:
    """Appends to and reads one file; nothing is made until the first event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_suffix(".old")

    def add(self, kind: str, message: str) -> None:
        """Keep what happened now, in one write, and log it. A full disk costs the event, not the
        caller."""
        events.info("%s", message)
        event = {"at": datetime.now(UTC).isoformat(), "kind": kind, "message": message}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
            if self._path.stat().st_size > MAX_BYTES:
                self._path.replace(self._aside)
        except OSError as error:
            log.warning("the event is not stored: %s", error)

    def mark(self) -> object:
        """Another one when something was added, by whichever process."""
        with suppress(OSError):
            status = self._path.stat()
            return status.st_ino, status.st_size
        return 0, 0

    async def finish(self) -> None:
        """What was added is in the file."""

    async def last(self, limit: int = 100) -> list[EventRecord]:
        """The same, for whoever waits."""
        return await asyncio.to_thread(self.events, limit)

    def events(self, limit: int = 100) -> list[EventRecord]:
        """The last ones, newest first."""
        found = [*_read(self._aside), *_read(self._path)]
        return found[: -limit - 1 : -1]


def _read(path: Path) -> Iterator[EventRecord]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            event = json.loads(line)
            at = datetime.fromisoformat(event["at"])
            yield EventRecord(at, "", event["kind"], event["message"])
        except (ValueError, KeyError, TypeError):  # half a line, written as the disk filled up
            continue
