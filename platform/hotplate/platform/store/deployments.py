"""Deployments and their revisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from hotplate.autoscaler.sharing.amounts import NOTHING, Amounts
from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.deployment_ports import AllocatePort, taken_ports
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.quotas import reserve
from hotplate.platform.store.records import Deployment, DesiredState, Revision, RolloutOutcome, User
from hotplate.platform.store.revisions import (
    deployment_record,
    deployment_records,
    latest_revision,
    revision_record,
)
from hotplate.platform.store.tables import DeploymentRow, OrganizationRow, RevisionRow


class Deployments(StorePart):
    """What users want to run, and what the controller says of it."""

    def __init__(self, database: Database, allocate_port: AllocatePort) -> None:
        super().__init__(database)
        self._allocate_port = allocate_port

    # What the API asks.

    def create(
        self,
        creator: User,
        name: str,
        bento_id: int,
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]] = (),
        least: Amounts = NOTHING,
        host: str = "",
        notes: Iterable[tuple[str, str]] = (),
    ) -> Deployment:
        """With its first revision, and a port of its own; `least` is what its `min_replicas` need,
        `host` by which the caller has reached the API, `notes` are further events. Raises Conflict
        where the name is taken, PortsExhausted, QuotaExceeded."""

        def add(session: Session) -> Deployment:
            if _by_name(session, creator.organization.id, name) is not None:
                raise Conflict(
                    f"deployment {name!r} already exists; "
                    "choose another name, or update it with `bentoml deployment update`"
                )
            row = DeploymentRow(
                organization_id=creator.organization.id,
                creator_id=creator.id,
                name=name,
                port=self._allocate_port(taken_ports(session)),
                wanted=DesiredState.RUNNING,
                status="deploying",
                labels=list(labels),
                host=host,
            )
            session.add(row)
            session.flush()
            session.refresh(row)
            reserve(session, row, least)
            _add_revision(session, row, bento_id, config)
            said = f"deployment {name!r} was created"
            return _begun(session, row, [("Created", said), *notes])

        return self._database.settle_races(add)

    def update(
        self,
        deployment_id: int,
        bento_id: int,
        config: Mapping[str, Any],
        labels: Sequence[Mapping[str, str]] | None,
        force: bool = False,
        least: Amounts = NOTHING,
        host: str = "",
        notes: Iterable[tuple[str, str]] = (),
    ) -> tuple[Deployment, bool]:
        """The deployment as it is wanted now, and whether a roll-out begins.

        A running deployment that is asked for what it already has keeps its revision, unless
        `force`. One that was terminated or whose last roll-out failed is rolled out anew.
        Labels None = unchanged; `notes` are events of a roll-out. Raises NotFound where it was
        deleted meanwhile, QuotaExceeded.
        """

        def change(session: Session) -> tuple[Deployment, bool]:
            row = _wanted_row(session, deployment_id)
            reserve(session, row, least)
            latest = latest_revision(session, row.id)
            same = latest.bento_id == bento_id and latest.config == config
            stands = row.wanted == DesiredState.RUNNING and latest.outcome != RolloutOutcome.FAILED
            if labels is not None:
                row.labels = list(labels)
            if same and stands and not force:
                return deployment_record(session, row), False
            number = _add_revision(session, row, bento_id, config)
            row.wanted, row.status, row.reason = DesiredState.RUNNING, "deploying", ""
            row.host = host or row.host
            said = f"revision {number} was asked for"
            return _begun(session, row, [("Updated", said), *notes]), True

        return self._database.settle_races(change)

    def terminate(self, deployment_id: int) -> Deployment:
        """Stop its replicas, keep the deployment. Raises NotFound where it was deleted."""
        with self._database.session() as session:
            row = _wanted_row(session, deployment_id)
            if row.wanted != DesiredState.TERMINATED:
                row.wanted, row.status, row.reason = DesiredState.TERMINATED, "terminating", ""
                add_event_row(session, row.id, "Terminated", "its replicas will be stopped")
            return deployment_record(session, row)

    def delete(self, deployment_id: int) -> Deployment:
        """Tear it down and forget it; its name is free at once. Raises NotFound."""
        with self._database.session() as session:
            row = _wanted_row(session, deployment_id)
            row.wanted, row.status, row.reason = DesiredState.DELETED, "terminating", ""
            add_event_row(session, row.id, "Deleted", "it will be torn down")
            return deployment_record(session, row)

    def find(self, organization_id: int, name: str) -> Deployment:
        """Raises NotFound, also for one that is being torn down."""
        with self._database.session() as session:
            row = _by_name(session, organization_id, name)
            if row is None:
                raise NotFound(f"deployment {name!r} does not exist in this organization")
            return deployment_record(session, row)

    def served_organizations(self) -> list[str]:
        """The names of those that have deployments, also deleted ones that are still to be torn
        down: the one with the oldest first."""
        with self._database.session() as session:
            oldest = func.min(DeploymentRow.id)
            query = (
                select(OrganizationRow.name)
                .join(DeploymentRow, DeploymentRow.organization_id == OrganizationRow.id)
                .group_by(OrganizationRow.name)
                .order_by(oldest)
            )
            return list(session.scalars(query))

    def of_organization(self, organization_id: int) -> list[Deployment]:
        """All that were not deleted, newest first."""
        with self._database.session() as session:
            rows = session.scalars(
                select(DeploymentRow)
                .where(
                    DeploymentRow.organization_id == organization_id,
                    DeploymentRow.wanted != DesiredState.DELETED,
                )
                .order_by(DeploymentRow.id.desc())
            )
            return deployment_records(session, rows.all())

    def revisions(self, deployment_id: int, limit: int = 100) -> list[Revision]:
        """Newest first."""
        with self._database.session() as session:
            rows = session.scalars(
                select(RevisionRow)
                .where(RevisionRow.deployment_id == deployment_id)
                .order_by(RevisionRow.number.desc())
                .limit(limit)
            )
            return [revision_record(row) for row in rows]

    # What the controller asks and says.

    def revision_numbers(self, deployment_id: int) -> list[int]:
        """Of all its revisions; a deployment that took over a deleted one's name has others."""
        with self._database.session() as session:
            query = select(RevisionRow.number).where(RevisionRow.deployment_id == deployment_id)
            return list(session.scalars(query))

    def revision(self, deployment_id: int, number: int) -> Revision:
        """Raises NotFound."""
        with self._database.session() as session:
            row = session.scalar(
                select(RevisionRow).where(
                    RevisionRow.deployment_id == deployment_id, RevisionRow.number == number
                )
            )
            if row is None:
                raise NotFound(f"revision {number}: the deployment has none of that number")
            return revision_record(row)

    def all(self) -> list[Deployment]:
        """All of every organization, also the deleted ones that are still to be torn down."""
        with self._database.session() as session:
            rows = session.scalars(select(DeploymentRow).order_by(DeploymentRow.id))
            return deployment_records(session, rows.all())

    def get(self, deployment_id: int) -> Deployment | None:
        """None once it is forgotten."""
        with self._database.session() as session:
            row = session.get(DeploymentRow, deployment_id)
            return None if row is None else deployment_record(session, row)

    def set_status(self, deployment_id: int, status: str, reason: str) -> None:
        with self._database.session() as session:
            session.execute(
                update(DeploymentRow)
                .where(DeploymentRow.id == deployment_id)
                .values(status=status, reason=reason)
            )

    def conclude_rollout(
        self,
        revision_id: int,
        outcome: RolloutOutcome,
        reason: str,
        event: str,
        log_tail: Sequence[str] = (),
    ) -> None:
        """How the roll-out of a revision ended, all at once: one that is ready serves from now on.

        Were it said in two steps, a crash between them would leave the old revision serving and
        the new one ready, with nobody to make the switch.
        """
        with self._database.session() as session:
            row = session.get(RevisionRow, revision_id)
            if row is None:
                return
            row.outcome, row.reason, row.log_tail = outcome, reason, list(log_tail)
            ready = outcome is RolloutOutcome.READY
            if ready:
                _let_serve(session, row.deployment_id, revision_id)
            kind = "RolloutReady" if ready else "RolloutFailed"
            add_event_row(session, row.deployment_id, kind, event)

    def stop_serving(self, deployment_id: int) -> None:
        """From now on no revision answers."""
        with self._database.session() as session:
            _let_serve(session, deployment_id, None)

    def allocate_ports(self, revision_id: int, services: Iterable[str]) -> dict[str, int]:
        """A port for each of these services of the revision; those that have one keep it."""
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
        """Give back the services' ports of all revisions but those of these numbers."""
        with self._database.session() as session:
            past = RevisionRow.deployment_id == deployment_id, RevisionRow.number.not_in(kept)
            for row in session.scalars(select(RevisionRow).where(*past)):
                if row.ports:
                    row.ports = {}

    def forget(self, deployment_id: int) -> None:
        """After tear-down: the row, its revisions and its history go; its port is free."""
        with self._database.session() as session:
            session.execute(delete(DeploymentRow).where(DeploymentRow.id == deployment_id))


def _let_serve(session: Session, deployment_id: int, revision_id: int | None) -> None:
    session.execute(
        update(RevisionRow)
        .where(RevisionRow.deployment_id == deployment_id)
        .values(serving=or_(False, RevisionRow.id == revision_id))
    )


def _by_name(session: Session, organization_id: int, name: str) -> DeploymentRow | None:
    return session.scalar(
        select(DeploymentRow).where(
            DeploymentRow.organization_id == organization_id,
            DeploymentRow.name == name,
            DeploymentRow.wanted != DesiredState.DELETED,
        )
    )


def _wanted_row(session: Session, deployment_id: int) -> DeploymentRow:
    row = session.get(DeploymentRow, deployment_id)
    if row is None or row.wanted == DesiredState.DELETED:
        raise NotFound("the deployment was deleted in the meantime; create it again")
    return row


def _begun(session: Session, row: DeploymentRow, events: Iterable[tuple[str, str]]) -> Deployment:
    """The deployment whose new revision was asked for, with these events."""
    for event in events:
        add_event_row(session, row.id, *event)
    return deployment_record(session, row)


def _add_revision(
    session: Session, row: DeploymentRow, bento_id: int, config: Mapping[str, Any]
) -> int:
    # Counted per name: what a deleted deployment still has running must not be taken for ours.
    newest = session.scalar(
        select(func.max(RevisionRow.number))
        .join(DeploymentRow, RevisionRow.deployment_id == DeploymentRow.id)
        .where(DeploymentRow.organization_id == row.organization_id, DeploymentRow.name == row.name)
    )
    number = (newest or 0) + 1
    session.add(
        RevisionRow(
            deployment_id=row.id,
            number=number,
            config=dict(config),
            bento_id=bento_id,
            outcome=RolloutOutcome.DEPLOYING,
        )
    )
    session.flush()
    return number
