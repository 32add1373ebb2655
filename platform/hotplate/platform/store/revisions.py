"""The revisions of deployments: how their roll-outs end, which one serves, and their ports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from hotplate.platform.errors import NotFound
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.deployment_ports import AllocatePort, taken_ports
from hotplate.platform.store.deployment_records import revision_record
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.records import Revision, RolloutOutcome
from hotplate.platform.store.tables import RevisionRow


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
    ) -> None:
        """Record how the roll-out of a revision ended; a ready one serves from now on.

        Both are one transaction. After a crash between two, the old revision would serve and the
        new one would be ready, and nothing would switch them.
        """
        with self._database.session() as session:
            row = session.get(RevisionRow, revision_id)
            if row is None:
                return
            row.outcome, row.reason, row.log_tail = outcome, reason, list(log_tail)
            ready = outcome is RolloutOutcome.READY
            if ready:
                _set_serving(session, row.deployment_id, revision_id)
            kind = "RolloutReady" if ready else "RolloutFailed"
            add_event_row(session, row.deployment_id, kind, event)

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
            for row in session.scalars(select(RevisionRow).where(*past)):
                if row.ports:
                    row.ports = {}


def _set_serving(session: Session, deployment_id: int, revision_id: int | None) -> None:
    session.execute(
        update(RevisionRow)
        .where(RevisionRow.deployment_id == deployment_id)
        .values(serving=or_(False, RevisionRow.id == revision_id))
    )
