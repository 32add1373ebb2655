from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.database import Database
from hotplate.platform.store.learnt import LearntRow, LearntValues
from hotplate.platform.store.parts import Store
from hotplate.platform.store.schema import MIGRATIONS, OWN_TABLES, head
from hotplate.platform.store.tables import Table
from tests.support.control_plane import postgresql
from tests.support.patience import until


def test_the_migrations_lead_to_the_tables_that_the_code_uses(database_url: str) -> None:
    Store(Database(database_url)).close()
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        opts = {
            "compare_type": True,
            "include_name": lambda name, kind, _: kind != "table" or name not in OWN_TABLES,
        }
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, Table.metadata) == []
    engine.dispose()


def test_a_schema_that_is_up_to_date_is_seen_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hotplate.db"
    Store(Database(url)).close()
    assert head() == ScriptDirectory(str(MIGRATIONS)).get_current_head()
    program = f"""
import sys
from hotplate.platform.store.database import Database
from hotplate.platform.store.parts import Store
from hotplate.platform.store.schema import MIGRATIONS, OWN_TABLES, head
Store(Database({url!r})).close()
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_schema_of_a_later_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hotplate.db"
    Store(Database(url)).close()
    with closing(sqlite3.connect(tmp_path / "hotplate.db")) as another:
        another.execute("UPDATE alembic_version SET version_num = '9999'")
        another.commit()
    with pytest.raises(StoreFailed, match=r"cannot be opened \(its schema is of revision 9999, "):
        Store(Database(url))


def test_a_second_start_finds_the_schema_and_the_data(database_url: str) -> None:
    first = Store(Database(database_url))
    user = first.identities.ensure_user("acme", "ada", "ada@example.com")
    first.close()
    second = Store(Database(database_url))
    assert second.identities.ensure_user("acme", "ada", "ada@example.com") == user
    second.close()


def test_sqlite_runs_with_the_settings_that_keep_acknowledged_writes(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/hotplate.db")
    with database.session() as session:
        found = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


async def test_the_loop_goes_on_while_the_store_works(store: Store) -> None:
    import asyncio
    import threading

    release = threading.Event()
    blocked = asyncio.create_task(store.run(release.wait, 5))
    await asyncio.sleep(0)
    release.set()
    assert await blocked


async def test_an_error_in_the_store_reaches_the_caller(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        await store.run(lambda: 1 // 0)


def test_a_database_that_does_not_take_a_write_says_why_and_takes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.platform.store.database.BUSY_TIMEOUT_MS", 10)
    store = Store(Database(f"sqlite:///{tmp_path}/hotplate.db"))
    with closing(sqlite3.connect(tmp_path / "hotplate.db")) as another:
        another.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match=r"\(database is locked\); nothing was changed"):
            store.identities.ensure_user("acme", "ada", "ada@example.com")
    assert store.identities.ensure_user("acme", "ada", "ada@example.com").name == "ada"
    store.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        pytest.param("sqlite:///{folder}/damaged.db", "file is not a database", id="damaged"),
        pytest.param("sqlite:///{folder}/no/x.db", "unable to open database file", id="no folder"),
        pytest.param("nothing", "Could not parse", id="no URL"),
        pytest.param("nosuch://x:secret@y/z", "Can't load plugin", id="unknown kind"),
    ],
)
def test_a_database_that_cannot_be_opened_says_which_and_why(
    tmp_path: Path, url: str, why: str
) -> None:
    (tmp_path / "damaged.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreFailed, match="cannot be opened") as failure:
        Database(url.format(folder=tmp_path))
    assert why in str(failure.value)
    assert "secret" not in str(failure.value)


async def test_a_database_that_takes_reads_only_is_named_and_used_again(
    postgresql_server: str,
) -> None:
    def succeeds(write: Callable[[], object]) -> bool:
        try:
            write()
        except StoreFailed:
            return False
        return True

    store = Store(Database(postgresql.database(postgresql_server)))
    store.identities.ensure_user("acme", "ada", "ada@example.com")
    postgresql.set_read_only(postgresql_server, True)
    try:
        # A value that is there already would not be written again.
        tries = itertools.count()
        await until(lambda: not succeeds(lambda: store.learnt.put("tried", next(tries))))
        with pytest.raises(StoreFailed, match=r"cannot be used now .*read-only transaction"):
            store.identities.ensure_user("acme", "bob", "bob@example.com")
        with pytest.raises(StoreFailed):
            store.check()
    finally:
        postgresql.set_read_only(postgresql_server, False)
    await until(lambda: succeeds(store.check))
    assert store.identities.ensure_user("acme", "bob", "bob@example.com").name == "bob"
    store.close()


def test_a_connection_that_was_opened_for_reads_only_is_not_lent_again(tmp_path: Path) -> None:
    with closing(Database(f"sqlite:///{tmp_path}/hotplate.db")) as database:
        store = Store(database)
        with database.session() as session:
            # As SQLite opens a file by itself as long as its disk takes no writes.
            session.execute(text("PRAGMA query_only = ON"))
        with pytest.raises(StoreFailed, match="readonly database"):
            store.learnt.put("tried", 1)
        store.learnt.put("tried", 2)
        store.check()


@pytest.mark.skipif(bool(postgresql.missing()), reason=postgresql.missing())
def test_of_two_changes_that_wait_for_each_other_both_are_made(
    request: pytest.FixtureRequest,
) -> None:
    url = postgresql.database(request.getfixturevalue("postgresql_server"))
    with closing(Database(url)) as one, closing(Database(url)) as other:
        tries = _change_both(one, other)
        assert len(tries) > 2, "one of them was ended, and tried again"
        assert [LearntValues(one).get(name) for name in "ab"] == [2, 2]
        assert not one.failed and not other.failed


def _change_both(one: Database, other: Database) -> list[str]:
    """The value that each try began with, of two changes that end up waiting for each other."""
    tries, both_began = list[str](), threading.Barrier(2)
    LearntValues(one).put("a", 0)
    LearntValues(one).put("b", 0)

    def change(database: Database, first: str, second: str) -> None:
        def work(session: Session) -> None:
            tries.append(first)
            _raise_value(session, first)
            if tries.count(first) == 1:
                both_began.wait(10)
            _raise_value(session, second)

        database.settle_races(work)

    with ThreadPoolExecutor(2) as threads:
        made = [threads.submit(change, one, "a", "b"), threads.submit(change, other, "b", "a")]
        for each in made:
            each.result()
    return tries


def _raise_value(session: Session, name: str) -> None:
    row = session.get_one(LearntRow, name, with_for_update=True)
    row.value += 1
    session.flush()
