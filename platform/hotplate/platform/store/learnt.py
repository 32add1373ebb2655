"""What the control plane has learnt or was told, and needs after a restart: JSON values by key."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, bindparam, delete, update
from sqlalchemy.orm import Mapped, mapped_column

from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.tables import Table


def of_deciders(deployment: str) -> str:
    """How the keys begin under which lies what the deciders of that deployment (its uid) have
    learnt; the name of the service follows."""
    return f"decider/{deployment}/"


class LearntRow(Table):
    """What the autoscaler has learnt, so that a restart does not forget it."""

    __tablename__ = "learnt"
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)


_REPLACE = (
    update(LearntRow)
    .where(LearntRow.key == bindparam("its_key"))
    .values(value=bindparam("its_value"))
    .returning(LearntRow.key)
    .execution_options(synchronize_session=False)
)


class LearntValues(StorePart):
    """A value is replaced as a whole; its owner chooses the key and what the value looks like."""

    def put(self, key: str, value: Any, action: str = "") -> None:
        """Keeps a JSON value (under `action`, an object) under a key; `action`: as what the audit
        tells it, empty = not at all."""
        with self._database.session() as session:
            if session.scalar(_REPLACE, {"its_key": key, "its_value": value}) is None:
                session.add(LearntRow(key=key, value=value))
            if action:
                record_audit(session, action, key, value, organization="")

    def get(self, key: str) -> Any:
        """The value kept under a key; None where there is none."""
        with self._database.session() as session:
            row = session.get(LearntRow, key)
            return None if row is None else row.value

    def forget(self, prefix: str) -> None:
        """Drops every value whose key begins with the prefix."""
        with self._database.session() as session:
            session.execute(
                delete(LearntRow).where(LearntRow.key.startswith(prefix, autoescape=True))
            )
