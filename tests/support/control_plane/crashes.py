"""A control plane that dies right after the n-th thing it does, for every n.

Nothing of it is cleaned up: what it has written and started is all that the next one finds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fsspec.core import url_to_fs
from sqlalchemy.orm import Session

from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.store.parts import Parts
from hotplate.cache.store.storage import LocalStorage
from hotplate.deploy.workload import Workload
from tests.support.control_plane.fake_engine import FakeEngine
from tests.support.control_plane.quick_store import QuickDatabase
from tests.support.dead import Dead, bury_the_dead


class Life:
    """Ends after so many effects, counted from when it is `counted`; 0 = never."""

    def __init__(self, effects: int = 0, *, counted: bool = False) -> None:
        self.counted = counted
        self.ended = asyncio.Event()
        self.last = ""
        """The effect after which it ended."""
        self._left = effects
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        bury_the_dead(self._loop)

    def needed(self) -> None:
        """Before an effect. Raises Dead."""
        if self.last:
            raise Dead(self.last)

    def spent(self, effect: str) -> None:
        """After an effect. Raises Dead if it was the last one."""
        with self._lock:
            self._left -= self.counted
            if self._left == 0 and self.counted:
                self.last = effect
                self._loop.call_soon_threadsafe(self.ended.set)
        self.needed()


class MortalDatabase(QuickDatabase):
    """Dies after a transaction that wrote something."""

    def __init__(self, file: Path, life: Life) -> None:
        super().__init__(file)
        self._life = life

    @contextmanager
    def session(self) -> Iterator[Session]:
        self._life.needed()
        with super().session() as session:
            connection = session.connection().connection.driver_connection
            assert connection is not None
            before = connection.total_changes
            yield session
            session.flush()
            wrote = connection.total_changes > before
        if wrote:
            self._life.spent("commit")


class MortalFolder(LocalStorage):
    """Dies after a file got its name, or lost it, or was opened."""

    life: Life

    def open_new(self, path: str) -> IO[bytes]:
        self.life.needed()
        file = super().open_new(path)
        try:
            self.life.spent("open")
        except Dead:
            file.close()
            raise
        return file

    def move(self, source: str, target: str) -> None:
        self.life.needed()
        super().move(source, target)
        self.life.spent(f"rename to {target.partition('/')[0]}")

    def remove(self, path: str) -> None:
        self.life.needed()
        super().remove(path)
        self.life.spent("remove")

    def remove_folder(self, folder: str) -> None:
        self.life.needed()
        super().remove_folder(folder)
        self.life.spent("remove folder")


class MortalBlobs(BlobStore):
    def __init__(self, url: str, life: Life) -> None:
        super().__init__(url)
        fs, root = url_to_fs(url)
        self._storage = MortalFolder(url, fs, root, 0)
        self._storage.life = life
        self._parts = Parts(self._storage)


class MortalEngine(FakeEngine):
    """Dies after a wish was carried out; its replicas go on."""

    def __init__(self, life: Life, survivors: FakeEngine | None = None) -> None:
        super().__init__(survivors=survivors)
        self._life = life

    async def scale(self, workload: Workload, count: int, *, remove: Collection[str] = ()) -> None:
        self._life.needed()
        before = list(self.found)
        await super().scale(workload, count, remove=remove)
        if list(self.found) != before:
            self._life.spent("scale")

    async def expect(self, workloads: Collection[Workload]) -> None:
        self._life.needed()
        before = list(self.found)
        await super().expect(workloads)
        if list(self.found) != before:
            self._life.spent("expect")
