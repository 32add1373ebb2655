"""Whoever copies from a blob store, with nothing being removed meanwhile.

A hold is an object that says until when; it is made new as long as the copying goes on, so one that
was killed is over by itself.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Self

from hotplate.cache.store.storage import Storage

HOLD = timedelta(minutes=10)
"""How long it is good. Whoever sweeps looks for holds last, and removes in less time."""
RENEWAL = timedelta(minutes=1)
_FOLDER = "holds"


class Holds:
    """Those of one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def held(self, now: datetime) -> bool:
        """Whether nothing may be removed now; holds that are over are forgotten."""
        held = False
        for name in self._storage.sizes(_FOLDER):
            if self._until(name) > now:
                held = True
            else:
                self.drop(name)
        return held

    def keep(self, name: str, until: datetime) -> None:
        with self._storage.create() as upload:
            upload.write(json.dumps({"until": until.isoformat()}).encode())
            upload.close()
            upload.publish(f"{_FOLDER}/{name}")

    def drop(self, name: str) -> None:
        self._storage.remove(f"{_FOLDER}/{name}")

    def _until(self, name: str) -> datetime:
        content = self._storage.read(f"{_FOLDER}/{name}") or b'{"until": "0001-01-01T00:00:00Z"}'
        return datetime.fromisoformat(json.loads(content)["until"])


class Hold:
    """One, for the length of a `with` block."""

    def __init__(self, holds: Holds, now: Callable[[], datetime]) -> None:
        self._holds = holds
        self._now = now
        self._name = uuid.uuid4().hex
        self._renewed_at: datetime | None = None

    def __enter__(self) -> Self:
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.drop(self._name)

    def renew(self) -> None:
        """To be called again and again."""
        now = self._now()
        if self._renewed_at is None or now - self._renewed_at >= RENEWAL:
            self._holds.keep(self._name, now + HOLD)
            self._renewed_at = now

    def during(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces; it is renewed while they are read."""
        for piece in pieces:
            self.renew()
            yield piece
