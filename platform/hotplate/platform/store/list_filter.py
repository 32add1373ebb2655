"""What a list is narrowed to, as conditions of SQL on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Column, ColumnElement, and_, exists, func, or_, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session


@dataclass(frozen=True)
class ListFilter:
    """Labels that an item has, and words of which each is a part of one of its names."""

    labels: Sequence[tuple[str, str]] = ()
    words: Sequence[str] = ()
    dev: bool = False
    """Of deployments, code spaces only."""

    def conditions(
        self,
        session: Session,
        labels: InstrumentedAttribute[list[Any]],
        *names: ColumnElement[str] | InstrumentedAttribute[str],
    ) -> list[ColumnElement[bool]]:
        """The conditions on an item whose `labels` are a list of keys and values."""
        has = [_has_label(session, labels, *label) for label in self.labels]
        named = [or_(*(n.icontains(word, autoescape=True) for n in names)) for word in self.words]
        return [*has, *named]


ALL = ListFilter()


def _has_label(
    session: Session, labels: InstrumentedAttribute[list[Any]], key: str, value: str
) -> ColumnElement[bool]:
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    rows = func.json_each(labels) if on_sqlite else func.json_array_elements(labels)
    label = rows.table_valued(Column("value", JSON))
    said = type_coerce(label.c.value, JSON)
    return exists().where(and_(said["key"].as_string() == key, said["value"].as_string() == value))
