"""What happened to deployments: decisions, demands, events, cold starts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Select, bindparam, delete, func, select
from sqlalchemy.orm import Session

from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.records import ColdStart, DecisionRecord, DemandRecord, EventRecord
from hotplate.platform.store.tables import (
    ColdStartRow,
    DecisionRow,
    DemandRow,
    DeploymentRow,
    EventRow,
    utc_now,
)

KEPT_PER_DEPLOYMENT = {DemandRow: 10_000, EventRow: 1000, ColdStartRow: 100}
"""Older rows go when new ones come: an installation's database does not grow without end."""
DECISIONS_KEPT = 1000
"""Per service, so that one that flaps leaves a quiet one's alone; `thinned` says which stay."""
SURPLUS = 50
"""So many older rows wait to be deleted together: each start of a replica writes several rows, and
to delete costs as much as to write."""
COUNTED = 10_000
"""Of so many deployments' services the number of rows is remembered."""

HistoryRow = DemandRow | EventRow | ColdStartRow
Row = TypeVar("Row", DemandRow, EventRow, ColdStartRow)


class History(StorePart):
    """Readers answer newest first. What is written of a deployment that is gone is dropped."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._rows: dict[tuple[object, ...], int] = {}
        """At most so many there are, of those that this process has written or counted."""

    def add_decisions(self, deployment_id: int, decisions: Sequence[DecisionRecord]) -> None:
        with self._database.session() as session:
            if not _is_there(session, deployment_id):
                return
            for decision in decisions:
                session.add(
                    DecisionRow(
                        deployment_id=deployment_id,
                        at=decision.at,
                        revision=decision.revision,
                        service=decision.service,
                        replicas=decision.replicas,
                        desired=decision.desired,
                        demand=decision.demand,
                        reason=decision.reason,
                        inputs=dict(decision.inputs),
                    )
                )
            for service in {decision.service for decision in decisions}:
                self._thin(session, deployment_id, service, len(decisions))

    def decisions(
        self, deployment_id: int, limit: int = 100, until: datetime | None = None
    ) -> list[DecisionRecord]:
        """Those made up to `until`, by default now: the last `limit` of each service."""
        made = () if until is None else (DecisionRow.at <= until,)
        of_service = func.row_number().over(
            partition_by=DecisionRow.service, order_by=DecisionRow.id.desc()
        )
        ranked = (
            select(DecisionRow.id, of_service.label("rank"))
            .where(DecisionRow.deployment_id == deployment_id, *made)
            .subquery()
        )
        last = select(ranked.c.id).where(ranked.c.rank <= limit)
        with self._database.session() as session:
            rows = session.scalars(
                select(DecisionRow).where(DecisionRow.id.in_(last)).order_by(DecisionRow.id.desc())
            )
            return [
                DecisionRecord(
                    at=row.at,
                    revision=row.revision,
                    service=row.service,
                    replicas=row.replicas,
                    desired=row.desired,
                    demand=row.demand,
                    reason=row.reason,
                    inputs=row.inputs,
                )
                for row in rows
            ]

    def add_demands(self, deployment_id: int, demands: Sequence[DemandRecord]) -> None:
        with self._database.session() as session:
            if not _is_there(session, deployment_id):
                return
            for demand in demands:
                session.add(DemandRow(deployment_id=deployment_id, **vars(demand)))
            self._prune(session, DemandRow, deployment_id, len(demands))

    def demands(self, deployment_id: int, limit: int = 10_000) -> list[DemandRecord]:
        with self._database.session() as session:
            return [
                DemandRecord(
                    at=row.at,
                    revision=row.revision,
                    service=row.service,
                    arrived=row.arrived,
                    in_flight=row.in_flight,
                    queued=row.queued,
                    service_s=row.service_s,
                    ready=row.ready,
                    starting=row.starting,
                )
                for row in _newest(session, DemandRow, deployment_id, limit)
            ]

    def add_event(self, deployment_id: int, kind: str, message: str) -> None:
        with self._database.session() as session:
            if _is_there(session, deployment_id):
                add_event_row(session, deployment_id, kind, message)

    def events(self, deployment_id: int, limit: int = 100) -> list[EventRecord]:
        with self._database.session() as session:
            row = session.get(DeploymentRow, deployment_id)
            name = "" if row is None else row.name
            return [
                EventRecord(row.at, name, row.kind, row.message)
                for row in _newest(session, EventRow, deployment_id, limit)
            ]

    def events_of_all(self, organization_id: int, limit: int = 100) -> list[EventRecord]:
        """What happened to any deployment of an organization."""
        query = (
            select(EventRow, DeploymentRow.name)
            .join(DeploymentRow, DeploymentRow.id == EventRow.deployment_id)
            .where(DeploymentRow.organization_id == organization_id)
            .order_by(EventRow.id.desc())
            .limit(limit)
        )
        with self._database.session() as session:
            return [
                EventRecord(row.at, name, row.kind, row.message)
                for row, name in session.execute(query)
            ]

    def put_cold_start(self, deployment_id: int, cold_start: ColdStart) -> None:
        """Adds a replica's start, or replaces what is known of it."""
        with self._database.session() as session:
            if not _is_there(session, deployment_id):
                return
            session.execute(delete(ColdStartRow).where(ColdStartRow.replica == cold_start.replica))
            session.add(
                ColdStartRow(
                    deployment_id=deployment_id,
                    replica=cold_start.replica,
                    revision=cold_start.revision,
                    service=cold_start.service,
                    created_at=cold_start.created_at,
                    ready_at=cold_start.ready_at,
                    phases=[dict(phase) for phase in cold_start.phases],
                    pool=cold_start.pool,
                    forked=cold_start.forked,
                )
            )
            self._prune(session, ColdStartRow, deployment_id, 1)

    def cold_starts(self, deployment_id: int, limit: int = 100) -> list[ColdStart]:
        with self._database.session() as session:
            return [
                ColdStart(
                    replica=row.replica,
                    revision=row.revision,
                    service=row.service,
                    created_at=row.created_at,
                    ready_at=row.ready_at,
                    phases=tuple(row.phases),
                    pool=row.pool,
                    forked=row.forked,
                )
                for row in _newest(session, ColdStartRow, deployment_id, limit)
            ]

    def _thin(self, session: Session, deployment_id: int, service: str, added: int) -> None:
        its = DecisionRow.deployment_id == deployment_id, DecisionRow.service == service
        rows = self._count(
            session, (deployment_id, service), select(func.count()).where(*its), added
        )
        if rows > DECISIONS_KEPT:
            session.flush()
            query = select(DecisionRow.id).where(*its).order_by(DecisionRow.id)
            gone = thinned(session.scalars(query).all(), DECISIONS_KEPT)
            session.execute(delete(DecisionRow).where(DecisionRow.id.in_(gone)))
            self._rows.pop((deployment_id, service), None)

    def _prune(
        self, session: Session, table: type[HistoryRow], deployment_id: int, added: int
    ) -> None:
        its = select(func.count()).where(table.deployment_id == deployment_id)
        rows = self._count(session, (table, deployment_id), its, added)
        if rows > KEPT_PER_DEPLOYMENT[table] + SURPLUS:
            _delete_older(session, table, deployment_id)
            self._rows.pop((table, deployment_id), None)

    def _count(
        self, session: Session, key: tuple[object, ...], counting: Select[int], added: int
    ) -> int:
        """How many rows there are at most, with those that are being added."""
        if key in self._rows:
            self._rows[key] += added
            return self._rows[key]
        if len(self._rows) >= COUNTED:
            self._rows.clear()  # of deployments that are gone too
        session.flush()
        self._rows[key] = session.scalar(counting) or 0
        return self._rows[key]


_IS_THERE = select(DeploymentRow.id).where(DeploymentRow.id == bindparam("id"))


def _is_there(session: Session, deployment_id: int) -> bool:
    return session.scalar(_IS_THERE, {"id": deployment_id}) is not None


def add_event_row(session: Session, deployment_id: int, kind: str, message: str) -> None:
    """Adds an event inside a transaction that does more."""
    session.add(EventRow(deployment_id=deployment_id, at=utc_now(), kind=kind, message=message))
    _delete_older(session, EventRow, deployment_id)


def thinned(ids: Sequence[int], most: int) -> list[int]:
    """Which rows are to go so that at most `most` stay; `ids` are all of them, the oldest first.

    The newest half of `most` stays whole. Of what is older every second row goes, and when the rest
    has become too many again, every second of that: the longer ago, the fewer are kept, and the
    oldest always is.
    """
    older, newest = list(ids[: -(most // 2)]), ids[-(most // 2) :]
    while len(older) + len(newest) > most:
        older = older[::2]
    return sorted(set(ids) - {*older, *newest})


def _newest(session: Session, table: type[Row], deployment_id: int, limit: int) -> Sequence[Row]:
    query = select(table).where(table.deployment_id == deployment_id)
    return session.scalars(query.order_by(table.id.desc()).limit(limit)).all()


def _delete_older(session: Session, table: type[HistoryRow], deployment_id: int) -> None:
    session.flush()
    last_kept = (
        select(table.id)
        .where(table.deployment_id == deployment_id)
        .order_by(table.id.desc())
        .offset(KEPT_PER_DEPLOYMENT[table])
        .limit(1)
        .scalar_subquery()
    )
    session.execute(
        delete(table).where(table.deployment_id == deployment_id, table.id <= last_kept)
    )
