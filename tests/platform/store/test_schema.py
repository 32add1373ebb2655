"""The way up and down through all revisions, with rows in every table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store import schema
from hotplate.platform.store.database import Database, opening
from hotplate.platform.store.tables import Table
from tests.support.control_plane import any_rows


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with opening(database_url) as engine:
        pass
    yield engine
    engine.dispose()


def columns(connection: Connection) -> dict[str, dict[str, Column[object]]]:
    return {table.name: dict(table.columns) for table in any_rows.tables(connection)}


def test_every_revision_is_reached_downwards_and_upwards_and_what_it_has_survives(
    engine: Engine,
) -> None:
    schema.migrate(engine, schema.head())
    with engine.begin() as connection:
        any_rows.add(connection)
        survives = {name: set(found) for name, found in columns(connection).items()}
        before = any_rows.read(connection)
    assert all(len(rows) == any_rows.ROWS for rows in before.values())
    for revision in reversed(schema.revisions()):
        schema.migrate(engine, revision)
        with engine.begin() as connection:
            assert schema.read(connection).revision == revision
            there = columns(connection)
        survives = {name: survives[name] & set(there[name]) for name in survives if name in there}
        schema.migrate(engine, schema.head())
        with engine.begin() as connection:
            after = any_rows.read(connection)
        assert any_rows.shared(after, survives) == any_rows.shared(before, survives)
    schema.migrate(engine, "")
    with engine.begin() as connection:
        assert schema.read(connection) == schema.Schema("", "")
        assert any_rows.tables(connection) == []


@pytest.mark.sqlite
def test_no_way_up_or_down_lets_sqlite_give_an_id_out_again(tmp_path: Path) -> None:
    """Others hold ids of deployments, revisions and lines of the audit while their rows go."""
    never = {
        table.name
        for table in Table.metadata.tables.values()
        if table.dialect_options["sqlite"].get("autoincrement")
    }
    with opening(f"sqlite:///{tmp_path}/hotplate.db") as engine:
        pass
    for way in (schema.head(), "0004", schema.head()):
        schema.migrate(engine, way)
    with engine.begin() as connection:
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master"))
        made = {str(name): str(sql) for name, sql in rows}
    engine.dispose()
    assert {name for name in never if "AUTOINCREMENT" not in made[name]} == set()


def test_what_is_said_to_be_compatible_takes_nothing_and_asks_for_nothing(engine: Engine) -> None:
    scripts = ScriptDirectory(str(schema.MIGRATIONS))
    for before, after in pairwise(schema.revisions()):
        schema.migrate(engine, before)
        with engine.begin() as connection:
            old = columns(connection)
        schema.migrate(engine, after)
        with engine.begin() as connection:
            new = columns(connection)
        fits = all(
            name in new
            and old[name].keys() <= new[name].keys()
            and all(
                column.nullable or column.server_default is not None
                for key, column in new[name].items()
                if key not in old[name]
            )
            for name in old
        )
        assert fits or not scripts.get_revision(after).module.compatible, after


@pytest.mark.parametrize(
    ("revision", "oldest", "runs"),
    [
        pytest.param("next", "this", True, id="the next one, compatible"),
        pytest.param("next", "next", False, id="the next one, not compatible"),
        pytest.param("next", None, False, id="the next one, which does not say"),
        pytest.param("later", "next", False, id="one after the next"),
    ],
)
def test_a_newer_schema_is_used_only_where_it_says_that_it_may_be(
    database_url: str, engine: Engine, revision: str, oldest: str | None, runs: bool
) -> None:
    head = int(schema.head())
    named = {"this": f"{head:04}", "next": f"{head + 1:04}", "later": f"{head + 2:04}"}
    Database(database_url).close()
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{named[revision]}'"))
        if oldest is None:
            connection.execute(text("DROP TABLE oldest_code"))
        else:
            connection.execute(text(f"UPDATE oldest_code SET revision = '{named[oldest]}'"))
    if runs:
        Database(database_url).close()
    else:
        with pytest.raises(StoreFailed, match=f"schema is of revision {named[revision]}, and this"):
            Database(database_url)
    with engine.begin() as connection:
        assert schema.read(connection).revision == named[revision]


def test_a_migration_that_leaves_rows_without_what_they_name_changes_nothing(
    engine: Engine,
) -> None:
    schema.migrate(engine, schema.head())
    with engine.begin() as connection:
        any_rows.add(connection)
        before = any_rows.read(connection)
    with pytest.raises((ValueError, IntegrityError)), schema.alone(engine) as connection:
        connection.execute(text("DELETE FROM repositories"))
    with engine.begin() as connection:
        assert any_rows.read(connection) == before


def test_a_transaction_after_a_migration_heeds_foreign_keys(engine: Engine) -> None:
    schema.migrate(engine, schema.head())
    with engine.begin() as connection:
        any_rows.add(connection)
        connection.execute(text("DELETE FROM deployments"))
        left = any_rows.read(connection)
    assert left["revisions"] == left["events"] == []


def test_every_migration_has_a_way_back_and_says_whether_it_is_compatible() -> None:
    for script in ScriptDirectory(str(schema.MIGRATIONS)).walk_revisions():
        assert re.fullmatch("[0-9]{4}", script.revision)
        assert callable(script.module.downgrade)
        assert isinstance(script.module.compatible, bool)
