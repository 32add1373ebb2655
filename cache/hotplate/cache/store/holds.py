"""Whoever reads or writes a blob store over a while, and whoever removes from it: never at once.

A hold is an object that says that somebody copies from the store, or puts files into it that
nothing names yet. A removal is one that says that somebody removes. Each is written first, and then
the other is looked for (Dekker's way): of two that come at once, at least one sees the other. Who
removes gives way; who holds waits until the removal is over, which takes seconds.

Whether one is still good is told by when it was written, beside the own one's time: both are the
storage's, so the clocks of two machines may differ. One that was killed is over by itself.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Self

from hotplate.cache.store.storage import Storage

HOLD = timedelta(minutes=10)
"""How long a hold is good that is not made new."""
RENEWAL = timedelta(minutes=1)
REMOVAL = timedelta(seconds=90)
"""How long a removal is good. It has to be over long before."""
TURN_S = 5.0
"""How long one removal may take: others wait for it."""
_LOOK_S = 0.1
_HOLDS, _REMOVALS = "holds", "removals"


class Holds:
    """The holds and removals of one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def held(self, at: float) -> bool:
        """Whether somebody holds; `at` is now, by the storage's clock."""
        return self._good(_HOLDS, at, HOLD)

    def removing(self, at: float) -> bool:
        """Whether somebody removes; `at` is now, by the storage's clock."""
        return self._good(_REMOVALS, at, REMOVAL)

    def keep(self, name: str, until: datetime) -> float:
        """Make a hold, or make it new; when that was, by the storage's clock."""
        return self._write(f"{_HOLDS}/{name}", until)

    def drop(self, name: str) -> None:
        self._storage.remove(f"{_HOLDS}/{name}")

    def announce(self, name: str, until: datetime) -> float:
        """Make a removal; when that was, by the storage's clock."""
        return self._write(f"{_REMOVALS}/{name}", until)

    def withdraw(self, name: str) -> None:
        self._storage.remove(f"{_REMOVALS}/{name}")

    def end_removals(self) -> None:
        """Those of processes that were killed; to be called by the only one who removes."""
        self._storage.remove_folder(_REMOVALS)

    def _write(self, path: str, until: datetime) -> float:
        with self._storage.create() as upload:
            # Older versions read it.
            upload.write(json.dumps({"until": until.isoformat()}).encode())
            upload.close()
            upload.publish(path)
        return self._storage.modified_at(path)

    def _good(self, folder: str, at: float, life: timedelta) -> bool:
        good = False
        for name, found in self._storage.objects(folder).items():
            if found.modified_at > at - life.total_seconds():
                good = True
            else:
                self._storage.remove(f"{folder}/{name}")
        return good


class Hold:
    """One, for the length of a `with` block. Entering waits until nobody removes."""

    def __init__(self, holds: Holds, now: Callable[[], datetime]) -> None:
        self._holds = holds
        self._now = now
        self._name = uuid.uuid4().hex
        self._renewed_at: datetime | None = None

    def __enter__(self) -> Self:
        pause = threading.Event()
        while self._holds.removing(self._keep()):
            pause.wait(_LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.drop(self._name)

    def renew(self) -> None:
        """To be called again and again."""
        if self._renewed_at is None or self._now() - self._renewed_at >= RENEWAL:
            self._keep()

    def during(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces; it is renewed while they are read."""
        for piece in pieces:
            self.renew()
            yield piece

    def _keep(self) -> float:
        self._renewed_at = self._now()
        return self._holds.keep(self._name, self._renewed_at + HOLD)


class Removal:
    """The right to remove, for a `with` block of `TURN_S` at most; false where somebody holds."""

    def __init__(self, holds: Holds, now: Callable[[], datetime]) -> None:
        self._holds = holds
        self._now = now
        self._name = uuid.uuid4().hex
        self.at = 0.0
        """When it began, Unix seconds by the storage's clock."""

    def __enter__(self) -> bool:
        self.at = self._holds.announce(self._name, self._now() + REMOVAL)
        return not self._holds.held(self.at)

    def __exit__(self, *_: object) -> None:
        self._holds.withdraw(self._name)
