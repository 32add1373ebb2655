"""A store that begins and reads as fast as one can that many tests begin anew."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import AllocatePort, lowest_free_port
from hotplate.platform.store.parts import Store
from tests.support.control_plane import postgresql


class QuickDatabase(Database):
    """In a file of SQLite. A new one is a copy of one that was migrated before, and statements are
    compiled once for all databases: that is most of what a test with a store of its own costs."""

    _compiled: ClassVar[dict[Any, Any]] = {}

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_empty())
        super().__init__(f"sqlite:///{file}")
        self._engine.dialect = self._compiled.setdefault("dialect", self._engine.dialect)
        self._engine = self._engine.execution_options(compiled_cache=self._compiled)


class QuickStore(Store):
    """A store in such a database; in one of PostgreSQL, known by the file, with
    `pytest --database postgresql`."""

    def __init__(
        self,
        file: Path,
        allocate_port: AllocatePort = lowest_free_port,
        *,
        share_address: bool = False,
    ) -> None:
        url = ELSEWHERE.url(file)
        database = QuickDatabase(file) if url is None else Database(url)
        super().__init__(database, allocate_port, share_address=share_address)


class Elsewhere:
    """The databases that stand for files, where there is a server for them."""

    def __init__(self) -> None:
        self.server = ""
        """Its URL; empty = files are files."""
        self._template = ""
        self._urls: dict[Path, str] = {}
        self._folders: set[Path] = set()

    def url(self, file: Path) -> str | None:
        """That of the database for this file, made where there is none; None = there is no server,
        or the file is of a test that has its own disk."""
        if not self.server or file.parent not in self._folders:
            return None
        if not self._template:
            self._template = postgresql.database(self.server)
            Store(Database(self._template)).close()
        if file not in self._urls:
            self._urls[file] = postgresql.database(self.server, self._template)
        return self._urls[file]

    def begin(self, folder: Path) -> None:
        """Files in this folder are meant."""
        self._folders.add(folder)

    def end(self, folder: Path) -> None:
        """Removes the databases of the folder's files."""
        self._folders.discard(folder)
        for file in [file for file in self._urls if file.parent == folder]:
            postgresql.drop(self.server, self._urls.pop(file))


ELSEWHERE = Elsewhere()


@functools.cache
def _empty() -> bytes:
    """A database in which nothing is but its tables."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "hotplate.db")
        Store(Database(f"sqlite:///{file}")).close()
        return file.read_bytes()
