"""Ways up and down through the schemas: all of one or nothing of it, and no row is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

from hotplate.platform.store import schema
from hotplate.platform.store.database import opening
from hotplate.platform.store.migrations import steps
from tests.support.control_plane import any_rows
from tests.support.control_plane.any_rows import Rows
from tests.support.control_plane.killed_lines import KilledWork

SOURCES = frozenset(
    map(
        str,
        (schema.__file__, steps.__file__, *schema.MIGRATIONS.rglob("*.py")),
    )
)
OLD = "0009"
"""The schema that is gone down to and up from: the first with no keys of secrets."""


def migrate(file: Path, revision: str) -> None:
    with opening(f"sqlite:///{file}") as engine:
        schema.migrate(engine, revision)
    engine.dispose()


def state_of(file: Path) -> tuple[str, Rows]:
    with opening(f"sqlite:///{file}") as engine, engine.begin() as connection:
        found = schema.read(connection).revision, any_rows.read(connection)
    engine.dispose()
    return found


def way(name: str, start: str, goal: str) -> KilledWork:
    """The way from one schema to another."""

    def made(folder: Path) -> None:
        """Rows in every table that there is at the start, and what must become of them."""
        file = folder / "hotplate.db"
        migrate(file, schema.head())
        with opening(f"sqlite:///{file}") as engine, engine.begin() as connection:
            any_rows.add(connection)
        engine.dispose()
        migrate(file, start)
        for each in ("before.db", "after.db"):
            shutil.copy(file, folder / each)
        migrate(folder / "after.db", goal)

    def go(folder: Path) -> None:
        migrate(folder / "hotplate.db", goal)

    def check(folder: Path) -> None:
        before, after = state_of(folder / "before.db"), state_of(folder / "after.db")
        assert (before[0], after[0]) == (start, goal)
        assert state_of(folder / "hotplate.db") in (before, after)
        go(folder)
        assert state_of(folder / "hotplate.db") == after

    return KilledWork(name, SOURCES, made, go, check)


UP = way("migrate up", OLD, schema.head())
DOWN = way("migrate down", schema.head(), OLD)
