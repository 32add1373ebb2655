"""The database under the store: its engine, its schema, and the one thread that writes.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that returned has been fsynced, so an
acknowledged write survives `kill -9` and a power cut. PostgreSQL does the same by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store import schema

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for another process (a command line) to end its transaction."""

_READS = "hotplate_reads"
"""Says of a connection that its transactions write nothing."""

RACE_ATTEMPTS = 5
"""Another process can take a name or port between our look and our insert; then look again."""


class Database:
    """One database by URL, e.g. `sqlite:////var/lib/hotplate/hotplate.db`, `postgresql://…`."""

    def __init__(self, url: str) -> None:
        """Opens the database and brings its schema up to date. Blocks. Raises StoreFailed."""
        with opening(url) as self._engine:
            schema.bring_up(self._engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._joint: ContextVar[Session | None] = ContextVar("joint", default=None)
        self.failed = False
        """Whether a transaction has failed; only a write that is tried on purpose clears it."""

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call that blocks in the store's thread, so the loop never waits.

        A caller that is cancelled stops waiting; the write itself is finished.
        """
        loop = asyncio.get_running_loop()
        context = copy_context()  # with whoever it is done for
        return await loop.run_in_executor(self._thread, lambda: context.run(call, *args, **kwargs))

    def close(self) -> None:
        """Waits for what is running, then lets the database go."""
        self._thread.shutdown()
        self._engine.dispose()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One transaction: committed at the end of the block, undone by any exception. Within
        `together` it is a part of that one.

        Raises StoreFailed.
        """
        if (joint := self._joint.get()) is not None:
            yield joint
            joint.flush()
            return
        try:
            with Session(self._engine) as session, session.begin():
                yield session
        except (OperationalError, InternalError) as error:  # a read-only PostgreSQL is the latter
            self.failed = True
            raise StoreFailed(
                f"the database cannot be used now ({' '.join(str(error.orig).split())}); "
                "nothing was changed, so try again when it can"
            ) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction of all that this thread has within the block. Raises StoreFailed."""
        with self.session() as session:
            token = self._joint.set(session)
            try:
                yield
            finally:
                self._joint.reset(token)

    def settle_races(self, work: Callable[[Session], T]) -> T:
        """Runs `work` in a transaction; again when a unique constraint says we lost a race."""
        for _ in range(RACE_ATTEMPTS - 1):
            try:
                with self.session() as session:
                    return work(session)
            except IntegrityError:
                continue
        with self.session() as session:
            return work(session)


class StorePart:
    """One subject of the store: its rows, in the database that all parts share.

    Methods block; asyncio calls them as `await part.run(part.method, …)`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one of the methods in the store's thread, as `Database.run` does."""
        return await self._database.run(call, *args, **kwargs)


@contextmanager
def opening(url: str) -> Iterator[Engine]:
    """The database's engine, which stays when nothing fails until it is disposed of; and what is
    done with it before it is used. Raises StoreFailed, which names the database."""
    engine: Engine | None = None
    try:
        engine = _engine(make_url(url))
        yield engine
    except (SQLAlchemyError, ValueError, ImportError) as error:
        if engine is not None:
            engine.dispose()
        why = " ".join(str(getattr(error, "orig", error)).split())
        raise StoreFailed(f"the database {_shown(url)} cannot be opened ({why})") from error


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads, all of it as it was at its first look, while others write."""
    options: dict[str, Any] = {_READS: True}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def _engine(url: URL) -> Engine:
    if url.drivername == "postgresql":
        return create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    engine = create_engine(url)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    return engine


def _shown(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string()
    except ArgumentError:
        return "of `database_url`"


def _prepare_sqlite(connection: Any, _: object) -> None:
    # The driver must not open transactions by itself: `_begin_immediate` does.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_immediate(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once when another process wrote
    # in between, whatever the busy timeout. Taking the write lock first makes it wait instead.
    reads = connection.get_execution_options().get(_READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
