"""Rows for every table that a database has, whatever its columns are; read back as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, select
from sqlalchemy import types as sa

from hotplate.platform.store.schema import OWN_TABLES

ROWS = 2
"""Of each table; the i-th row names the i-th of those that it belongs to."""

DECISIVE = {("tokens", "role"): ""}
"""By table and column: what stands there where another text would decide what becomes of the row on
the way down; a token with a role belongs to nobody before there are organizations' tokens."""

Rows = dict[str, list[dict[str, Any]]]
"""By table: its rows, in the order of its primary key."""


def tables(connection: Connection) -> Sequence[Table]:
    """All that are there, each after those that it names."""
    there = MetaData()
    there.reflect(connection)
    return [table for table in there.sorted_tables if table.name not in OWN_TABLES]


def add(connection: Connection) -> None:
    """Some rows for every table."""
    for table in tables(connection):
        for number in range(1, ROWS + 1):
            values = {column.name: _value(column, number) for column in table.columns}
            connection.execute(table.insert().values(values))


def read(connection: Connection) -> Rows:
    """Every row of every table."""
    return {
        table.name: [
            dict(row)
            for row in connection.execute(
                select(table).order_by(*table.primary_key.columns)
            ).mappings()
        ]
        for table in tables(connection)
    }


def shared(rows: Rows, columns: Mapping[str, set[str]]) -> Rows:
    """What these have of the columns, by table, that are named."""
    return {
        name: [{key: row[key] for key in row if key in columns[name]} for row in rows[name]]
        for name in rows
        if name in columns
    }


def _value(column: Column[Any], number: int) -> object:
    if (decisive := DECISIVE.get((column.table.name, column.name))) is not None:
        return decisive
    for foreign_key in column.foreign_keys:
        return _value(foreign_key.column, number)
    match column.type:
        case sa.Boolean():
            return number == 1
        case sa.Integer():
            return number
        case sa.Float():
            return number / 3
        case sa.DateTime():
            return datetime(2026, 1, 2, 3, 4, 5, 678) + timedelta(days=number)
        case sa.LargeBinary():
            return bytes([0, 255, number])
        case sa.JSON():
            return {"number": number, "é": [None, 0.1, "\n"]}
    return f"{column.table.name}.{column.name} {number} é\n"
