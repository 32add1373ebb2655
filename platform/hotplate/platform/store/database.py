"""The database under the store: its engine, its schema, and the one thread that writes.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that returned has been fsynced, so an
acknowledged write survives `kill -9` and a power cut. PostgreSQL does the same by default.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from sqlite3 import SQLITE_OK, SQLITE_READONLY
from time import perf_counter, sleep  # noqa: TID251 - in a thread, which blocks for the database too
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    ExceptionContext,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from sqlalchemy.orm import Session

from hotplate.platform.errors import NoLongerLeader, StoreFailed
from hotplate.platform.store import schema

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000
"""How long SQLite waits for another process (a command line) to end its transaction."""

_READS = "hotplate_reads"
"""Says of a connection that its transactions write nothing."""

_WRITES = "hotplate_writes"
"""Says of a connection that its transaction has written."""

IDLE_TRANSACTION_S = 10
"""PostgreSQL ends a transaction whose process says nothing for so long, as one that was stopped:
its locks would hold up whoever acts in its place."""

_EMPTY: Mapping[str | bytes, Callable[[], Any]] = {
    "[]": list,
    b"[]": list,
    "{}": dict,
    b"{}": dict,
}

ANSWER_S = 45.0
"""How long a caller waits for its turn and its answer: less than the stock client does (60 s)."""
_LIMITS_MS = {"lock_timeout": BUSY_TIMEOUT_MS, "statement_timeout": 30_000}
"""PostgreSQL waits without end by itself, and everybody waits for the thread that waits for it."""
_CONNECTION_S = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5}
"""Of libpq: a server that has gone without a word is noticed in half a minute, not in hours."""

_FAILURES = (OperationalError, InternalError, InterfaceError, NoConnectionLeft)
"""The database's, and not ours: it is gone, full, locked, or takes reads only (InternalError)."""

DEADLOCK = "40P01"
"""PostgreSQL's word for two transactions that wait for each other, of which it has ended ours."""

RACE_ATTEMPTS = 5
"""Another process can take a name or port between our look and our insert; then look again."""

AFTER_DEADLOCK_S = 0.05
"""The other change gets the locks that ours has let go before ours asks for them again: PostgreSQL
wakes who waits for them no sooner than it gives them to who asks just then."""


_PRIMARY_CODE = 0xFF
"""The bits of SQLite's extended result codes that say what failed, without how."""


class Deadlocked(StoreFailed):
    """Tried again a moment later, it is done."""


class Database:
    """One database by URL, e.g. `sqlite:////var/lib/hotplate/hotplate.db`, `postgresql://…`."""

    def __init__(self, url: str, took: Callable[[float], object] = lambda seconds: None) -> None:
        """Opens the database and brings its schema up to date. Blocks. Raises StoreFailed.

        `took` gets how long each transaction did, in whichever thread.
        """
        self._took = took
        with opening(url) as self._engine:
            schema.bring_up(self._engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._joint: ContextVar[Session | None] = ContextVar("joint", default=None)
        self.failed = False
        """Whether a transaction has failed; only a write that is tried on purpose clears it."""
        self.epoch: int | None = None
        """The fence: of a control plane that acts, its term's. What it writes is kept only while
        that is the last one. None = this process does not act, and what it writes is not fenced."""

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call that blocks in the store's thread, so the loop never waits. Raises what it
        raises, and StoreFailed after `ANSWER_S`.

        A caller that is cancelled stops waiting; a write that has begun is finished.
        """
        loop = asyncio.get_running_loop()
        context = copy_context()  # with whoever it is done for
        work = loop.run_in_executor(self._thread, lambda: context.run(call, *args, **kwargs))
        try:
            done, _ = await asyncio.wait({work}, timeout=ANSWER_S)
        finally:
            work.cancel()  # does nothing to what is done, and takes away what has not begun
        if not done:
            raise StoreFailed(
                f"the database has not answered for {ANSWER_S:g} s; what was asked may still be "
                "done, so look before you try again"
            )
        return work.result()

    def close(self) -> None:
        """Waits for what is running, then lets the database go."""
        self._thread.shutdown()
        self._engine.dispose()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One transaction: committed at the end of the block, undone by any exception. Within
        `together` it is a part of that one.

        Raises StoreFailed; NoLongerLeader where another control plane acts now.
        """
        if (joint := self._joint.get()) is not None:
            yield joint
            joint.flush()
            return
        with self.unfenced() as session:
            yield session
            self._check_fence(session)

    @contextmanager
    def unfenced(self) -> Iterator[Session]:
        """A transaction of its own, whichever control plane acts. Raises StoreFailed."""
        commits, began = False, perf_counter()
        try:
            with Session(self._engine) as session, session.begin():
                yield session
                session.flush()
                commits = True
        except _FAILURES as error:
            if getattr(getattr(error, "orig", None), "sqlstate", "") == DEADLOCK:
                raise Deadlocked(
                    "the database has ended one of two changes that waited for each other; "
                    "nothing was changed, so try again"
                ) from error
            self.failed = True
            lost = commits and isinstance(error, DBAPIError) and error.connection_invalidated
            raise StoreFailed(
                f"the database cannot be used now ({_why(error)}); {_so(lost)}"
            ) from (error)
        finally:
            self._took(perf_counter() - began)

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction of all that this thread has within the block. Raises StoreFailed."""
        with self.session() as session:
            token = self._joint.set(session)
            try:
                yield
            finally:
                self._joint.reset(token)

    def _check_fence(self, session: Session) -> None:
        """Raises NoLongerLeader where a control plane that acts has written in this transaction,
        and another one acts. Until it has ended no other one begins: the row is locked."""
        session.flush()
        if self.epoch is None or not session.in_transaction():
            return
        if not session.connection().info.get(_WRITES):
            return
        locked = " FOR SHARE" if self._engine.dialect.name == "postgresql" else ""
        epoch = session.scalar(text(f"SELECT epoch FROM leadership{locked}"))
        if epoch != self.epoch:
            raise NoLongerLeader(
                f"this control plane acted in epoch {self.epoch}, and another one does in epoch "
                f"{epoch}; nothing was changed, so try again"
            )

    def settle_races(self, work: Callable[[Session], T]) -> T:
        """Runs `work` in a transaction; again when a unique constraint says we lost a race, or
        when it and another one waited for each other."""
        for _ in range(RACE_ATTEMPTS - 1):
            try:
                with self.session() as session:
                    return work(session)
            except IntegrityError:
                continue
            except Deadlocked:
                sleep(AFTER_DEADLOCK_S)
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
        raise StoreFailed(f"the database {_shown(url)} cannot be opened ({_why(error)})") from error


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads, all of it as it was at its first look, while others write."""
    options: dict[str, Any] = {_READS: True}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        schema.take_time(connection)
        if engine.dialect.name == "postgresql":  # what is read may take long to be written away
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection


def _engine(url: URL) -> Engine:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(
            url,
            pool_pre_ping=True,  # connections that a restart has ended are made anew
            json_deserializer=_read,
            connect_args=_limits(url),
        )
    else:
        engine = create_engine(url, json_deserializer=_read)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
        event.listen(engine, "handle_error", _let_read_only_go)
    elif url.get_backend_name() == "postgresql":
        event.listen(engine, "connect", _limit_idle)
    event.listen(engine, "begin", _nothing_written)
    event.listen(engine, "before_cursor_execute", _note_writes)
    return engine


def _limits(url: URL) -> dict[str, Any]:
    """How long PostgreSQL may take, but for what the URL says itself: with `options=` in it, which
    a pooler like PgBouncer refuses, none of ours are sent."""
    options = " ".join(f"-c {name}={value}" for name, value in _LIMITS_MS.items())
    limits = {"options": options, **_CONNECTION_S}
    return {name: value for name, value in limits.items() if name not in url.query}


def _why(error: Exception) -> str:
    """What the driver says of it, in one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _so(lost: bool) -> str:
    if lost:
        return "whether the change was made is not known, so look before you try again"
    return "nothing was changed, so try again when it can"


def _read(text: str | bytes) -> Any:
    """The value of a JSON column. Most of those that a list reads are empty, and to know these two
    takes a tenth of the parser's time."""
    empty = _EMPTY.get(text)
    return json.loads(text) if empty is None else empty()


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


def _let_read_only_go(context: ExceptionContext) -> None:
    # SQLite opens a file that takes no writes for reads only, and what is open so stays so when
    # the file takes them again: the pool must not lend that connection once more.
    code = getattr(context.original_exception, "sqlite_errorcode", SQLITE_OK)
    if code & _PRIMARY_CODE == SQLITE_READONLY:
        context.is_disconnect = True


def _limit_idle(connection: Any, _: object) -> None:
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_TRANSACTION_S}s'")
    connection.commit()


def _nothing_written(connection: Connection) -> None:
    connection.info[_WRITES] = False


def _note_writes(connection: Connection, _: object, statement: str, *__: object) -> None:
    if not statement.lstrip().startswith(("SELECT", "PRAGMA")):
        connection.info[_WRITES] = True


def _begin_immediate(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once when another process wrote
    # in between, whatever the busy timeout. Taking the write lock first makes it wait instead.
    reads = connection.get_execution_options().get(_READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
