"""What happened to the platform itself, where there is no machine whose file keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Mapped, mapped_column

from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import EventRecord
from hotplate.platform.store.tables import Table

KEPT = 10_000


class PlatformEventRow(Table):
    __tablename__ = "platform_events"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    kind: Mapped[str]
    message: Mapped[str]


class PlatformEvents(StorePart):
    """Keeps the last `KEPT`."""

    def add(self, kind: str, message: str, at: datetime) -> None:
        """Keep what happened then."""
        with self._database.session() as session:
            # PostgreSQL keeps no text with a zero in it, and what others say may have any.
            row = PlatformEventRow(at=at, kind=kind, message=message.replace("\x00", "?"))
            session.add(row)
            session.flush()
            session.execute(delete(PlatformEventRow).where(PlatformEventRow.id <= row.id - KEPT))

    def last(self, limit: int) -> Sequence[EventRecord]:
        """Newest first."""
        newest = select(PlatformEventRow).order_by(PlatformEventRow.id.desc()).limit(limit)
        with self._database.session() as session:
            rows = session.scalars(newest)
            return [EventRecord(row.at, "", row.kind, row.message) for row in rows]
