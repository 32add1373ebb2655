"""The row that says which control plane acts, for how long, and in which epoch.

Its moments are the database's: the clocks of the control planes' machines may differ.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CursorResult,
    Double,
    Executable,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, Session, mapped_column

from hotplate.platform.store.database import Database
from hotplate.platform.store.records import Term
from hotplate.platform.store.tables import Table

CONTROLLER = "controller"
"""The name of the one row."""


class LeadershipRow(Table):
    __tablename__ = "leadership"
    name: Mapped[str] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str]
    url: Mapped[str]
    process: Mapped[str]
    place: Mapped[str]
    renewals: Mapped[int] = mapped_column(BigInteger)
    ends_at: Mapped[float] = mapped_column(Double)
    """Seconds since 1970 of the database's clock, as are all moments here."""
    rival_at: Mapped[float] = mapped_column(Double)


class Leadership:
    """Reads and changes that row, each in a transaction that no fence holds. Blocks.

    All methods raise StoreFailed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def look(self, *, waits: bool = False) -> Term:
        """The term as it is now; one that `waits` leaves a note that it is there."""
        with self._database.unfenced() as session:
            now = _now(session)
            asked: Executable = select(LeadershipRow, now).where(LeadershipRow.name == CONTROLLER)
            if waits:
                asked = _row().values(rival_at=now).returning(LeadershipRow, now)
            return _term(session, asked) or Term()

    def take(self, seen: Term, mine: Term, term_s: float) -> int | None:
        """Begin a term of `mine` after the one that was `seen`: its epoch. None where that is no
        longer the one that there is."""
        epoch = seen.epoch + 1
        values = {
            "epoch": epoch,
            "holder": mine.holder,
            "url": mine.url,
            "process": mine.process,
            "place": mine.place,
            "renewals": 0,
        }
        try:
            with self._database.unfenced() as session:
                ends_at = _now(session) + term_s
                if not seen.epoch:
                    session.execute(
                        insert(LeadershipRow).values(
                            name=CONTROLLER, **values, ends_at=ends_at, rival_at=0.0
                        )
                    )
                    return epoch
                took = _row().where(
                    LeadershipRow.epoch == seen.epoch,
                    LeadershipRow.holder == seen.holder,
                    LeadershipRow.renewals == seen.renewals,
                )
                return epoch if _changes(session, took.values(**values, ends_at=ends_at)) else None
        except IntegrityError:  # another one has made the row
            return None

    def renew(self, epoch: int, term_s: float) -> Term | None:
        """Have the term of that epoch end so long from now. None where another one has begun."""
        with self._database.unfenced() as session:
            now = _now(session)
            ours = _row().where(LeadershipRow.epoch == epoch)
            renewed = ours.values(ends_at=now + term_s, renewals=LeadershipRow.renewals + 1)
            return _term(session, renewed.returning(LeadershipRow, now))

    def give_up(self, epoch: int) -> None:
        """End the term of that epoch now, if it is still the last one."""
        with self._database.unfenced() as session:
            ours = _row().where(LeadershipRow.epoch == epoch)
            session.execute(ours.values(holder="", ends_at=_now(session)))


def _row() -> Any:
    return update(LeadershipRow).where(LeadershipRow.name == CONTROLLER)


def _term(session: Session, statement: Executable) -> Term | None:
    """What the statement gives of the row, with the moment; None where there is none."""
    found = session.execute(statement).first()
    if found is None:
        return None
    row, at = found
    return Term(
        epoch=row.epoch,
        holder=row.holder,
        url=row.url,
        process=row.process,
        place=row.place,
        renewals=row.renewals,
        left_s=row.ends_at - at,
        rival_s=at - row.rival_at,
    )


def _changes(session: Session, statement: Executable) -> bool:
    return cast("CursorResult[Any]", session.execute(statement)).rowcount == 1


def _now(session: Session) -> ColumnElement[float]:
    """The database's clock at this statement, not at the beginning of its transaction."""
    if session.get_bind().dialect.name == "postgresql":
        return literal_column("extract(epoch from clock_timestamp())::float8", Double())
    return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double())
