"""The revisions of deployments: how their roll-outs end, which one serves, and their ports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import case, delete, func, or_, select, update
from sqlalchemy.orm import Session

from hotplate.platform.errors import NotFound
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.deployment_ports import AllocatePort, taken_ports
from hotplate.platform.store.deployment_records import revision_record
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.records import Revision, RolloutOutcome
from hotplate.platform.store.tables import (
    ArtifactRow,
    DeploymentRow,
    OrganizationRow,
    RevisionRow,
)
from hotplate.serving.gateway.protocol.version_mark import VERSION


class Revisions(StorePart):
    """What the controller and the API read and write of single revisions."""

    def __init__(self, database: Database, allocate_port: AllocatePort) -> None:
        super().__init__(database)
        self._allocate_port = allocate_port

    def of_deployment(self, deployment_id: int, limit: int = 100) -> list[Revision]:
        """The last revisions of a deployment, newest first."""
        with self._database.session() as session:
            rows = session.scalars(
                select(RevisionRow)
                .where(RevisionRow.deployment_id == deployment_id)
                .order_by(RevisionRow.number.desc())
                .limit(limit)
            )
            return [revision_record(row) for row in rows]

    def numbers(self, deployment_id: int) -> list[int]:
        """The numbers of all revisions of a deployment; one that took over the name of a deleted
        deployment continues its numbers."""
        with self._database.session() as session:
            query = select(RevisionRow.number).where(RevisionRow.deployment_id == deployment_id)
            return list(session.scalars(query))

    def users(self, organization_id: int | None) -> dict[str, set[tuple[str, str]]]:
        """By the manifest of a bento's files: organization and name of each deployment that keeps a
        revision with it, of itself or of a version. None = of all organizations."""
        files = case((RevisionRow.files != "", RevisionRow.files), else_=ArtifactRow.files)
        query = (
            select(files, OrganizationRow.name, DeploymentRow.name)
            .join(DeploymentRow, DeploymentRow.id == RevisionRow.deployment_id)
            .join(OrganizationRow, OrganizationRow.id == DeploymentRow.organization_id)
            .join(ArtifactRow, ArtifactRow.id == RevisionRow.bento_id)
            .distinct()
        )
        if organization_id is not None:
            query = query.where(DeploymentRow.organization_id == organization_id)
        found: dict[str, set[tuple[str, str]]] = {}
        with self._database.session() as session:
            for digest, organization, name in session.execute(query):
                found.setdefault(digest, set()).add((organization, name.partition(VERSION)[0]))
        return found

    def get(self, deployment_id: int, number: int) -> Revision:
        """The revision of that number. Raises NotFound."""
        with self._database.session() as session:
            row = session.scalar(
                select(RevisionRow).where(
                    RevisionRow.deployment_id == deployment_id, RevisionRow.number == number
                )
            )
            if row is None:
                raise NotFound(f"revision {number}: the deployment has no revision of that number")
            return revision_record(row)

    def conclude_rollout(
        self,
        revision_id: int,
        outcome: RolloutOutcome,
        reason: str,
        event: str,
        log_tail: Sequence[str] = (),
        *,
        under_way: bool = False,
    ) -> bool:
        """Record how the roll-out of a revision ended; a ready one serves from now on. With
        `under_way`, one that somebody else has ended stays as it is; whether this was recorded.

        Both are one transaction. After a crash between two, the old revision would serve and the
        new one would be ready, and nothing would switch them.
        """
        with self._database.session() as session:
            row = session.get(RevisionRow, revision_id)
            if row is None or (under_way and row.outcome != RolloutOutcome.DEPLOYING):
                return False
            row.outcome, row.reason, row.log_tail = outcome, reason, list(log_tail)
            ready = outcome is RolloutOutcome.READY
            if ready:
                _set_serving(session, row.deployment_id, revision_id)
            before = select(RevisionRow.id).where(
                RevisionRow.deployment_id == row.deployment_id, RevisionRow.serving
            )
            if ready:
                kind = "RolloutReady"
            else:
                kind = "RolloutStopped" if session.scalar(before) else "RolloutFailed"
            add_event_row(session, row.deployment_id, kind, event)
            if under_way:
                name = session.get_one(DeploymentRow, row.deployment_id).name
                record_audit(session, "rollout.abort", name, {"revision": row.number})
            return True

    def note_progress(self, revision_id: int, progress: Mapping[str, Any]) -> None:
        """Keep how far the roll-out of a revision has come."""
        with self._database.session() as session:
            session.execute(
                update(RevisionRow)
                .where(RevisionRow.id == revision_id)
                .values(progress=dict(progress))
            )

    def pause(self, revision_id: int, by: str, *, paused: bool) -> bool:
        """Hold the roll-out of a revision, or let it go on; whether that changed anything: it does
        not where the roll-out is over, or was held, or went on, already."""
        with self._database.session() as session:
            row = session.get(RevisionRow, revision_id)
            under_way = row is not None and row.outcome == RolloutOutcome.DEPLOYING
            if row is None or not under_way or row.paused == paused:
                return False
            row.paused = paused
            kind = "RolloutPaused" if paused else "RolloutResumed"
            does = "is paused" if paused else "goes on"
            event = f"the roll-out of revision {row.number} {does}: {by} asked for it"
            add_event_row(session, row.deployment_id, kind, event)
            name = session.get_one(DeploymentRow, row.deployment_id).name
            action = f"rollout.{'pause' if paused else 'resume'}"
            record_audit(session, action, name, {"revision": row.number})
            return True

    def page(self, deployment_id: int, start: int, count: int) -> tuple[list[Revision], int]:
        """Revisions of a deployment, newest first, and how many there are in all."""
        mine = RevisionRow.deployment_id == deployment_id
        with self._database.session() as session:
            rows = session.scalars(
                select(RevisionRow)
                .where(mine)
                .order_by(RevisionRow.number.desc())
                .offset(start)
                .limit(count)
            )
            total = session.scalar(select(func.count()).select_from(RevisionRow).where(mine))
            return [revision_record(row) for row in rows], total or 0

    def last_ready(self, deployment_id: int, before: int) -> Revision | None:
        """The last revision with a lower number that became ready; None where none did."""
        with self._database.session() as session:
            row = session.scalar(
                select(RevisionRow)
                .where(
                    RevisionRow.deployment_id == deployment_id,
                    RevisionRow.number < before,
                    RevisionRow.outcome == RolloutOutcome.READY,
                )
                .order_by(RevisionRow.number.desc())
                .limit(1)
            )
            return None if row is None else revision_record(row)

    def forget_older(self, deployment_id: int, last: int, needed: Collection[int]) -> None:
        """Forget all revisions of a deployment but the last so many, and the `needed` numbers."""
        with self._database.session() as session:
            kept = (
                select(RevisionRow.number)
                .where(RevisionRow.deployment_id == deployment_id)
                .order_by(RevisionRow.number.desc())
                .limit(last)
            )
            numbers = {*session.scalars(kept), *needed}
            session.execute(
                delete(RevisionRow).where(
                    RevisionRow.deployment_id == deployment_id,
                    RevisionRow.number.not_in(numbers),
                    RevisionRow.serving.is_(False),
                )
            )

    def stop_serving(self, deployment_id: int) -> None:
        """From now on no revision of the deployment serves."""
        with self._database.session() as session:
            _set_serving(session, deployment_id, None)

    def allocate_ports(self, revision_id: int, services: Iterable[str]) -> dict[str, int]:
        """A port for each of these services of the revision; a service that has one keeps it."""
        with self._database.session() as session:
            row = session.get_one(RevisionRow, revision_id)
            taken, ports = taken_ports(session), dict(row.ports)
            for service in services:
                if service not in ports:
                    ports[service] = self._allocate_port(taken)
                    taken.add(ports[service])
            row.ports = ports
            return ports

    def release_ports(self, deployment_id: int, kept: Collection[int]) -> None:
        """Free the services' ports of all revisions of the deployment but the `kept` numbers."""
        with self._database.session() as session:
            past = RevisionRow.deployment_id == deployment_id, RevisionRow.number.not_in(kept)
            rows = session.execute(select(RevisionRow.id, RevisionRow.ports).where(*past))
            had = [id_ for id_, ports in rows if ports]
            if had:
                session.execute(update(RevisionRow).where(RevisionRow.id.in_(had)).values(ports={}))


def _set_serving(session: Session, deployment_id: int, revision_id: int | None) -> None:
    session.execute(
        update(RevisionRow)
        .where(RevisionRow.deployment_id == deployment_id)
        .values(serving=or_(False, RevisionRow.id == revision_id))
    )
