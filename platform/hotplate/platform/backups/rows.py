"""Rows of any table as lines of JSON, the same from SQLite and PostgreSQL.

The first line has the names of the columns, and each other one the values of a row: moments in ISO
8601, bytes in base64, and a value that is JSON as the text that the database has, so that a null in
it is told from none. Which tables there are is what the database says: nothing here names one.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    DateTime,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    func,
    select,
    text,
)

from hotplate.platform.store.schema import OWN_TABLES

BATCH = 500
"""Rows that are read or written at once."""


def tables(connection: Connection) -> list[Table]:
    """All that the database has of the schema, each after those that it names."""
    there = MetaData()
    there.reflect(connection)
    return [table for table in there.sorted_tables if table.name not in OWN_TABLES]


def lines(connection: Connection, table: Table) -> Iterator[bytes]:
    """The columns of a table, then its rows in the order of its key; a few are in memory."""
    columns = list(table.columns)
    yield _line([column.name for column in columns])
    asked = [cast(one, Text) if isinstance(one.type, JSON) else one for one in columns]
    query = select(*asked).order_by(*table.primary_key.columns)
    write = [_writer(column) for column in columns]
    with connection.execution_options(yield_per=BATCH).execute(query) as rows:
        for row in rows:
            yield _line(
                [
                    None if value is None else to_json(value)
                    for to_json, value in zip(write, row, strict=True)
                ]
            )


def load(connection: Connection, table: Table, lines: Iterable[bytes]) -> int:
    """Inserts what `lines` of the same table have said; how many rows. Raises ValueError for
    columns that it does not have, and SQLAlchemyError."""
    found = iter(lines)
    names = json.loads(next(found))
    if unknown := set(names) - set(table.columns.keys()):
        raise ValueError(f"{table.name} has no column {min(unknown)}")
    columns = [table.columns[name] for name in names]
    read = [_reader(column) for column in columns]
    insert = table.insert().values({c.name: _bound(connection, c) for c in columns})
    count = 0
    while batch := list(islice(found, BATCH)):
        rows = [
            {
                f"new_{name}": None if value is None else from_json(value)
                for name, from_json, value in zip(names, read, json.loads(line), strict=True)
            }
            for line in batch
        ]
        connection.execute(insert, rows)
        count += len(rows)
    return count


def last_ids(connection: Connection, tables: Sequence[Table]) -> dict[str, int]:
    """The last id that each table with numbered rows has given, also to rows that are gone."""
    found = {}
    for table in tables:
        if (key := _number(table)) is None:
            continue
        last = connection.scalar(select(func.max(key))) or 0
        if connection.dialect.name == "postgresql":
            sequence = connection.scalar(_SEQUENCE, {"table": table.name, "key": key.name})
            if sequence is not None:
                given = f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"
                last = max(last, connection.scalar(text(given)) or 0)
        elif _counts(connection, table):
            last = max(last, connection.scalar(_GIVEN, {"table": table.name}) or 0)
        found[table.name] = last
    return found


def go_on_from(connection: Connection, tables: Sequence[Table], ids: dict[str, int]) -> None:
    """Have the next row of each table numbered after these."""
    for table in tables:
        key, last = _number(table), ids.get(table.name, 0)
        if key is None or not last:
            continue
        if connection.dialect.name == "postgresql":
            sequence = connection.scalar(_SEQUENCE, {"table": table.name, "key": key.name})
            if sequence is not None:
                connection.execute(
                    text("SELECT setval(:sequence, :last)"), {"sequence": sequence, "last": last}
                )
        elif _counts(connection, table):
            about = {"table": table.name, "last": last}
            connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), about)
            connection.execute(text("INSERT INTO sqlite_sequence VALUES (:table, :last)"), about)


_SEQUENCE = text("SELECT pg_get_serial_sequence(:table, :key)")
_GIVEN = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
_MADE = text("SELECT sql FROM sqlite_master WHERE name = :table")


def _counts(connection: Connection, table: Table) -> bool:
    """Whether SQLite remembers the ids that it has given."""
    made = connection.scalar(_MADE, {"table": table.name}) or ""
    return "AUTOINCREMENT" in made.upper()


def _number(table: Table) -> Column[Any] | None:
    """The column that the database numbers rows by."""
    keys = list(table.primary_key.columns)
    if len(keys) != 1 or keys[0].foreign_keys or keys[0].type.python_type is not int:
        return None
    return keys[0]


def _line(values: Sequence[object]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _writer(column: Column[Any]) -> Callable[[Any], object]:
    if isinstance(column.type, DateTime):
        return lambda value: value.isoformat()
    if isinstance(column.type, LargeBinary):
        return lambda value: b64encode(value).decode()
    return lambda value: value


def _reader(column: Column[Any]) -> Callable[[Any], object]:
    if isinstance(column.type, DateTime):
        return datetime.fromisoformat
    if isinstance(column.type, LargeBinary):
        return b64decode
    return lambda value: value


def _bound(connection: Connection, column: Column[Any]) -> Any:
    """The parameter of a column. Its name is not the column's, which SQLAlchemy keeps for itself;
    SQLite would make a number of text that is cast to JSON."""
    is_json = isinstance(column.type, JSON)
    value = bindparam(f"new_{column.name}", type_=Text() if is_json else column.type)
    return cast(value, JSON) if is_json and connection.dialect.name == "postgresql" else value
