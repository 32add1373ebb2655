"""A store that begins and reads as fast as one can that many tests begin anew."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from hotplate.platform.store.database import Database
from hotplate.platform.store.deployment_ports import AllocatePort, lowest_free_port
from hotplate.platform.store.parts import Store


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
    """A store in such a database."""

    def __init__(self, file: Path, allocate_port: AllocatePort = lowest_free_port) -> None:
        super().__init__(QuickDatabase(file), allocate_port)


@functools.cache
def _empty() -> bytes:
    """A database in which nothing is but its tables."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "hotplate.db")
        Store(Database(f"sqlite:///{file}")).close()
        return file.read_bytes()
