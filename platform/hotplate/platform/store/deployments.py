"""Deployments: what users want to run, and the status that the controller gives it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update
from sqlalchemy.orm import Session, aliased

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.spec.deployment_host import deployment_host
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.canaries import (
    NO_CANARY,
    CanaryDraft,
    RevisionDraft,
    add_revision,
    end_version,
    set_canary,
    set_weight,
    versions_of,
    wake_versions,
)
from hotplate.platform.store.config_changes import config_changes
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.deployment_ports import AllocatePort, taken_ports
from hotplate.platform.store.deployment_records import (
    COLUMNS,
    deployment_record,
    deployment_records,
    latest_revision,
)
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.list_filter import ALL, ListFilter
from hotplate.platform.store.quotas import reserve
from hotplate.platform.store.records import Deployment, DesiredState, RolloutOutcome, User
from hotplate.platform.store.tables import (
    ArtifactRow,
    DeploymentRow,
    OrganizationRow,
    RepositoryRow,
    RevisionRow,
)

__all__ = ["Deployments", "RevisionDraft"]


class Deployments(StorePart):
    """Creates, changes, finds and removes deployments."""

    def __init__(
        self, database: Database, allocate_port: AllocatePort, *, share_address: bool = False
    ) -> None:
        """With `share_address` deployments are told apart by host names."""
        super().__init__(database)
        self._allocate_port = allocate_port
        self._share_address = share_address

    def create(
        self,
        creator: User,
        name: str,
        draft: RevisionDraft,
        labels: Sequence[Mapping[str, str]] = (),
        host: str = "",
        canary: CanaryDraft = NO_CANARY,
        *,
        dev: bool = False,
    ) -> Deployment:
        """A new deployment with its first revision and its own port. `host`: the name by which the
        client reached the API; `dev`: it is a code space. Raises Conflict where the name is taken,
        or its host name another deployment's, PortsExhausted, QuotaExceeded."""

        def add(session: Session) -> Deployment:
            if _by_name(session, creator.organization.id, name) is not None:
                raise Conflict(
                    f"deployment {name!r} already exists; "
                    "choose another name, or update it with `bentoml deployment update`"
                )
            port = self._allocate_port(taken_ports(session))
            if self._share_address:  # whoever is as fast has taken the same port, and one of us not
                _check_host_is_free(session, name, creator.organization.name)
            row = DeploymentRow(
                organization_id=creator.organization.id,
                creator_id=creator.id,
                name=name,
                port=port,
                wanted=DesiredState.RUNNING,
                status="deploying",
                labels=list(labels),
                host=host,
                dev=dev,
            )
            session.add(row)
            session.flush()
            session.refresh(row)
            reserve(session, row, draft.least)
            add_revision(session, row, draft)
            set_canary(session, row, canary, lambda: self._allocate_port(taken_ports(session)))
            changes = config_changes({}, draft.config) | {"bento": _bento(session, draft)}
            if row.canary:
                changes["canary"] = _shares(row)
            record_audit(session, "deployment.create", name, changes)
            created = "Created", f"deployment {name!r} was created"
            return _with_events(session, row, [created, *draft.notes])

        return self._database.settle_races(add)

    def update(
        self,
        deployment_id: int,
        draft: RevisionDraft,
        labels: Sequence[Mapping[str, str]] | None,
        force: bool = False,
        host: str = "",
        canary: CanaryDraft | None = None,
    ) -> tuple[Deployment, bool]:
        """The deployment after the change, and whether a roll-out begins.

        A running deployment keeps its revision if the draft changes nothing, unless `force`. One
        that was terminated or whose last roll-out failed is rolled out again. Labels or canary
        None = unchanged. Raises NotFound where it was deleted in the meantime, QuotaExceeded.
        """

        def change(session: Session) -> tuple[Deployment, bool]:
            row = existing_row(session, deployment_id)
            reserve(session, row, draft.least)
            latest = latest_revision(session, row.id)
            same = latest.bento_id == draft.bento_id and latest.config == draft.config
            failed = latest.outcome == RolloutOutcome.FAILED
            is_running = row.wanted == DesiredState.RUNNING and not failed
            changes = config_changes(latest.config, draft.config)
            if labels is not None and row.labels != list(labels):
                row.labels = changes["labels"] = list(labels)
            before = row.canary
            if canary is not None:
                set_canary(session, row, canary, lambda: self._allocate_port(taken_ports(session)))
            if row.canary != before:
                changes["canary"] = _shares(row)
            if same and is_running and not force:
                record_audit(session, draft.action, row.name, changes)
                return deployment_record(session, row), False
            # A code space with the same bento goes on with the files that it has; another bento
            # may need others, which its client sends next.
            files = draft.files or (latest.files if latest.bento_id == draft.bento_id else "")
            number = add_revision(session, row, replace(draft, files=files))
            changes |= {"revision": number, "bento": _bento(session, draft)}
            record_audit(session, draft.action, row.name, changes)
            row.wanted, row.status, row.reason = DesiredState.RUNNING, "deploying", ""
            wake_versions(session, row)
            row.host = host or row.host
            updated = "Updated", f"revision {number} was requested"
            return _with_events(session, row, [updated, *draft.notes]), True

        return self._database.settle_races(change)

    def terminate(self, deployment_id: int) -> Deployment:
        """Stop the replicas and keep the deployment. Raises NotFound where it was deleted."""
        with self._database.session() as session:
            row = existing_row(session, deployment_id)
            if row.wanted != DesiredState.TERMINATED:
                row.wanted, row.status, row.reason = DesiredState.TERMINATED, "terminating", ""
                add_event_row(session, row.id, "Terminated", "its replicas will be stopped")
                record_audit(session, "deployment.terminate", row.name)
            for child in versions_of(session, row.id):
                child.wanted, child.status = DesiredState.TERMINATED, "terminating"
            return deployment_record(session, row)

    def delete(self, deployment_id: int) -> Deployment:
        """Tear the deployment down and forget it; its name is free at once. Raises NotFound."""
        with self._database.session() as session:
            row = existing_row(session, deployment_id)
            row.wanted, row.status, row.reason = DesiredState.DELETED, "terminating", ""
            add_event_row(session, row.id, "Deleted", "it will be torn down")
            record_audit(session, "deployment.delete", row.name)
            for child in versions_of(session, row.id):
                end_version(session, child)
            return deployment_record(session, row)

    def stop_version(self, deployment_id: int, version: str, reason: str) -> None:
        """A version of a canary gets no requests any longer, for a reason that its event says."""
        with self._database.session() as session:
            row = session.get(DeploymentRow, deployment_id)
            if row is not None and row.canary.get("weights", {}).get(version):
                set_weight(session, row, version, 0)
                event = f"version {version!r} of the canary gets no requests any longer: {reason}"
                add_event_row(session, row.id, "CanaryStopped", event)

    def versions(self, deployment_id: int) -> list[int]:
        """The ids of all versions of a deployment's canary, those that are being torn down too."""
        with self._database.session() as session:
            query = select(DeploymentRow.id).where(DeploymentRow.parent_id == deployment_id)
            return list(session.scalars(query))

    def find(self, organization_id: int, name: str) -> Deployment:
        """The deployment of that name. Raises NotFound, also for one that is being torn down."""
        with self._database.session() as session:
            row = _by_name(session, organization_id, name)
            if row is None:
                raise NotFound(f"deployment {name!r:.80} does not exist in this organization")
            return deployment_record(session, row)

    def wanted(self, organization_id: int, names: Collection[str]) -> dict[str, DesiredState]:
        """What is wanted of those of these names that there are."""
        with self._database.session() as session:
            query = select(DeploymentRow.name, DeploymentRow.wanted).where(
                DeploymentRow.organization_id == organization_id,
                DeploymentRow.name.in_(names),
                DeploymentRow.wanted != DesiredState.DELETED,
                DeploymentRow.parent_id.is_(None),
            )
            return {name: DesiredState(wanted) for name, wanted in session.execute(query)}

    def served_organizations(self) -> list[str]:
        """The names of organizations that have deployments, including deleted ones that are not yet
        torn down; the organization with the oldest deployment comes first."""
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
        """All deployments that were not deleted, newest first."""
        with self._database.session() as session:
            rows = session.execute(
                select(*COLUMNS)
                .where(
                    DeploymentRow.organization_id == organization_id,
                    DeploymentRow.wanted != DesiredState.DELETED,
                    DeploymentRow.parent_id.is_(None),
                )
                .order_by(DeploymentRow.id.desc())
            )
            return deployment_records(session, rows.all())

    def page(
        self,
        organization_id: int,
        wanted: ListFilter = ALL,
        start: int = 0,
        count: int | None = None,
    ) -> tuple[list[Deployment], int]:
        """Deployments, newest first, and how many there are; only code spaces that are asked for
        alone have their bentos' manifests, which their client compares.

        `count` None = to the last one. The words of `wanted` are parts of a deployment's name or of
        the tag of its latest bento.
        """
        newest = aliased(RevisionRow)
        last = (
            select(func.max(newest.number))
            .where(newest.deployment_id == DeploymentRow.id)
            .correlate(DeploymentRow)
            .scalar_subquery()
        )
        tag = (
            select(RepositoryRow.name + ":" + ArtifactRow.version)
            .join(ArtifactRow, ArtifactRow.repository_id == RepositoryRow.id)
            .join(RevisionRow, RevisionRow.bento_id == ArtifactRow.id)
            .where(RevisionRow.deployment_id == DeploymentRow.id, RevisionRow.number == last)
            .correlate(DeploymentRow)
            .scalar_subquery()
        )
        with self._database.session() as session:
            query = (
                select(*COLUMNS)
                .where(
                    DeploymentRow.organization_id == organization_id,
                    DeploymentRow.wanted != DesiredState.DELETED,
                    DeploymentRow.parent_id.is_(None),
                )
                .where(*wanted.conditions(session, DeploymentRow.labels, DeploymentRow.name, tag))
            )
            query = query.where(DeploymentRow.dev) if wanted.dev else query
            total = session.scalar(query.with_only_columns(func.count(DeploymentRow.id)))
            rows = session.execute(
                query.order_by(DeploymentRow.id.desc()).offset(start).limit(count)
            )
            return deployment_records(session, rows.all(), manifests=wanted.dev), total or 0

    def some(self, organization_id: int, ids: Collection[int] | None) -> list[Deployment]:
        """Those of an organization's with these ids that were not deleted, None = all of them,
        newest first and without their bentos' manifests."""
        query = select(*COLUMNS).where(
            DeploymentRow.organization_id == organization_id,
            DeploymentRow.wanted != DesiredState.DELETED,
            DeploymentRow.parent_id.is_(None),
        )
        if ids is not None:
            query = query.where(DeploymentRow.id.in_(ids))
        with self._database.session() as session:
            rows = session.execute(query.order_by(DeploymentRow.id.desc()))
            return deployment_records(session, rows.all(), manifests=False)

    def all(self) -> list[Deployment]:
        """The deployments of all organizations, including deleted ones not yet torn down."""
        with self._database.session() as session:
            rows = session.execute(select(*COLUMNS).order_by(DeploymentRow.id))
            return deployment_records(session, rows.all())

    def ids(self) -> list[int]:
        """Those of all deployments, the oldest first: to read what each of thousands is takes
        seconds."""
        with self._database.session() as session:
            return list(session.scalars(select(DeploymentRow.id).order_by(DeploymentRow.id)))

    def get(self, deployment_id: int) -> Deployment | None:
        """The deployment; None after `forget`."""
        with self._database.session() as session:
            row = session.get(DeploymentRow, deployment_id)
            return None if row is None else next(iter(deployment_records(session, [row])), None)

    def set_status(self, deployment: Deployment, status: str, reason: str) -> None:
        """Keep what was found of the deployment as it was read; one that somebody has changed since
        keeps the status that it has got with the change."""
        read = {
            "read_id": deployment.id,
            "read_wanted": deployment.wanted,
            "read_number": deployment.latest.number,
        }
        with self._database.session() as session:
            session.execute(_SET_STATUS, read | {"status": status, "reason": reason})

    def forget(self, deployment_id: int) -> None:
        """After the tear-down, remove the row, its revisions and its history, and free its port."""
        with self._database.session() as session:
            session.execute(delete(DeploymentRow).where(DeploymentRow.id == deployment_id))


_SET_STATUS = (
    update(DeploymentRow)
    .where(
        DeploymentRow.id == bindparam("read_id"),
        DeploymentRow.wanted == bindparam("read_wanted"),
        ~exists().where(
            RevisionRow.deployment_id == bindparam("read_id"),
            RevisionRow.number > bindparam("read_number"),
        ),
    )
    .values(status=bindparam("status"), reason=bindparam("reason"))
    .execution_options(synchronize_session=False)
)
"""To put it together takes twice as long as to have it done, and each start does several."""


def _bento(session: Session, draft: RevisionDraft) -> str:
    bento = session.get_one(ArtifactRow, draft.bento_id)
    return f"{bento.repository.name}:{bento.version}"


def _shares(row: DeploymentRow) -> dict[str, Any]:
    """How requests are shared with its versions, for the audit."""
    return {key: row.canary.get(key) for key in ("weights", "route_type", "route_by")}


def _check_host_is_free(session: Session, name: str, organization: str) -> None:
    """Raises Conflict, which tells nothing of whose it is. A name can be made to look like the host
    of another organization's deployment, so all of them are looked at."""
    host = deployment_host(name, organization)
    there = (
        select(DeploymentRow.name, OrganizationRow.name)
        .join(OrganizationRow, DeploymentRow.organization_id == OrganizationRow.id)
        .where(DeploymentRow.wanted != DesiredState.DELETED, DeploymentRow.parent_id.is_(None))
    )
    if any(deployment_host(*each) == host for each in session.execute(there)):
        raise Conflict(
            f"deployment {name!r}: the host name {host!r} that it would have is taken; choose "
            "another name"
        )


def _by_name(session: Session, organization_id: int, name: str) -> DeploymentRow | None:
    return session.scalar(
        select(DeploymentRow).where(
            DeploymentRow.organization_id == organization_id,
            DeploymentRow.name == name,
            DeploymentRow.wanted != DesiredState.DELETED,
            DeploymentRow.parent_id.is_(None),
        )
    )


def existing_row(session: Session, deployment_id: int) -> DeploymentRow:
    """Raises NotFound."""
    row = session.get(DeploymentRow, deployment_id)
    if row is None or row.wanted == DesiredState.DELETED:
        raise NotFound("the deployment was deleted in the meantime; create it again")
    return row


def _with_events(
    session: Session, row: DeploymentRow, events: Iterable[tuple[str, str]]
) -> Deployment:
    """The deployment, once these events are recorded."""
    for event in events:
        add_event_row(session, row.id, *event)
    return deployment_record(session, row)
