"""Which schema a database has, which one the code is written for, and the way between them.

A schema that is older than the code is brought up when the database is opened; `hotplate migrate`
also takes it down again. One that is newer is refused, with one exception: while a version of
Hotplate is replaced by the next, both run on the schema of the next. So every migration says
whether the code before it is `compatible` with what it leaves, and the database keeps that beside
its revision, as the older code does not have the newer migration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, Table, Text, inspect, select, text

MIGRATIONS = Path(__file__).parent / "migrations"

MIGRATION_LOCK = 7_100_799
"""An arbitrary number: PostgreSQL's advisory lock that one migrating process holds."""

OWN_TABLES = ("alembic_version", "oldest_code")
"""What says which schema this is, and is no part of it."""

_OLDEST_CODE = Table("oldest_code", MetaData(), Column("revision", Text, primary_key=True))


@dataclass(frozen=True)
class Schema:
    """What a database says of its schema."""

    revision: str
    """Four digits, as the name of its last migration; empty = there is no table yet."""
    oldest_code: str
    """The revision of the earliest code that runs on it."""

    @property
    def is_current(self) -> bool:
        """Whether it is the one that this code is written for."""
        return self.revision == head()

    @property
    def runs(self) -> bool:
        """Whether this code runs on it: also on the next one, where that is compatible."""
        is_next = self.revision == f"{int(head()) + 1:04}"
        return self.is_current or (is_next and self.oldest_code <= head())


def head() -> str:
    """The revision that the code is written for: the last of the migrations, by their names."""
    return revisions()[-1]


def revisions() -> list[str]:
    """All that the code knows, the first one first."""
    return sorted(path.name[1:5] for path in MIGRATIONS.glob("versions/v*.py"))


def read(connection: Connection) -> Schema:
    """That of the database as it is now."""
    tables = inspect(connection)
    if not tables.has_table("alembic_version"):
        return Schema("", "")
    # No row is left where a migration was taken back that was the only one.
    revision = connection.scalar(text("SELECT version_num FROM alembic_version")) or ""
    noted = tables.has_table(_OLDEST_CODE.name) and connection.scalar(select(_OLDEST_CODE))
    return Schema(str(revision), str(noted or revision))


def is_there(engine: Engine) -> bool:
    """False where to connect would make an empty file."""
    file = engine.url.database or ""
    return engine.dialect.name != "sqlite" or Path(file).exists()


def bring_up(engine: Engine) -> None:
    """Makes the database's schema one that this code runs on, if it is not.

    Raises ValueError for a later schema, and SQLAlchemyError.
    """
    with engine.begin() as connection:
        lock(connection)
        found = read(connection)
    if not found.runs:
        migrate(engine, head())


def migrate(engine: Engine, revision: str) -> Schema:
    """Takes the schema up or down to a revision of the code, in one transaction; what it was.

    "" takes away every table. Another process that migrates is waited for. Raises ValueError for a
    later schema, and SQLAlchemyError.
    """
    with alone(engine) as connection:
        lock(connection)
        before = read(connection)
        if before.revision > head():
            raise ValueError(
                f"its schema is of revision {before.revision}, and this code knows none after "
                f"{head()}: use the hotplate that brought it there, or its 'hotplate migrate --to "
                f"{head()}'"
            )
        move(connection, before.revision, revision)
    return before


def move(connection: Connection, before: str, revision: str) -> None:
    """Takes the schema from one revision to another within a transaction of `alone`."""
    if revision == before:
        return
    # Only another schema needs it: to import Alembic takes longer than all else here.
    from hotplate.platform.store.migrations import steps

    steps.go(connection, MIGRATIONS, before, revision)
    _OLDEST_CODE.drop(connection, checkfirst=True)
    if revision:
        _OLDEST_CODE.create(connection)
        oldest = steps.oldest_code(MIGRATIONS, revision)
        connection.execute(_OLDEST_CODE.insert().values(revision=oldest))


def lock(connection: Connection) -> None:
    """Waits until no other process migrates; none begins before this transaction ends."""
    take_time(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})


def take_time(connection: Connection) -> None:
    """This transaction may take as long as it needs: everybody else's have limits."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0"))


@contextmanager
def alone(engine: Engine) -> Iterator[Connection]:
    """A transaction in which tables are made anew.

    SQLite cannot change all of a table: Alembic copies it, drops it and renames the copy. With
    foreign keys on, to drop it removes the rows that point to it, so they are off, and are looked
    at before the end. https://www.sqlite.org/lang_altertable.html#otheralter
    """
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            with connection.begin():
                yield connection
            return
        driver = connection.connection.cursor()
        driver.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                yield connection
                _check_foreign_keys(connection)
        finally:
            driver.execute("PRAGMA foreign_keys = ON")


def _check_foreign_keys(connection: Connection) -> None:
    if (lost := connection.exec_driver_sql("PRAGMA foreign_key_check").first()) is not None:
        raise ValueError(f"row {lost[1]} of {lost[0]} would name a {lost[2]} row that is not there")
