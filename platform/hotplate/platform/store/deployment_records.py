"""Records of deployments, joined with their latest and their serving revision.

Of what may be thousands of rows only the columns are read: to make the ORM's objects of them takes
three times as long as all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, func, or_, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import NotFound
from hotplate.platform.store.artifacts import artifact_record, repository_record
from hotplate.platform.store.identities import organization_record
from hotplate.platform.store.records import (
    Artifact,
    Deployment,
    DesiredState,
    Organization,
    Revision,
    RolloutOutcome,
    User,
)
from hotplate.platform.store.tables import (
    ArtifactRow,
    DeploymentRow,
    OrganizationRow,
    RepositoryRow,
    RevisionRow,
    UserRow,
)

COLUMNS = tuple(DeploymentRow.__table__.columns)
"""What records are made of; the rows may as well be the ORM's."""
AT_ONCE = 10_000
"""Ids in one statement; SQLite takes 32,766 parameters, and PostgreSQL 65,535."""


def latest_revision(session: Session, deployment_id: int) -> RevisionRow:
    return session.scalars(
        select(RevisionRow)
        .where(RevisionRow.deployment_id == deployment_id)
        .order_by(RevisionRow.number.desc())
        .limit(1)
    ).one()


def deployment_record(session: Session, row: DeploymentRow) -> Deployment:
    """Raises NotFound where it is forgotten while it is read."""
    session.flush()
    for record in deployment_records(session, [row]):
        return record
    raise NotFound("the deployment was deleted in the meantime; create it again")


def deployment_records(
    session: Session, rows: Sequence[DeploymentRow | Row[Any]], *, manifests: bool = True
) -> list[Deployment]:
    """The rows with their latest and serving revisions, in as many queries for all of them as for
    one; without the `manifests` of their bentos, which are most of what there is to read, where
    nobody needs them. One that is forgotten between two of the queries is left out: with PostgreSQL
    each sees what was committed before it.
    """
    found: list[Deployment] = []
    for first in range(0, len(rows), AT_ONCE):
        found += _joined(session, rows[first : first + AT_ONCE], manifests=manifests)
    return found


def _joined(
    session: Session, rows: Sequence[DeploymentRow | Row[Any]], *, manifests: bool
) -> list[Deployment]:
    tenants = _organizations(session, {row.organization_id for row in rows})
    users = _users(session, {row.creator_id for row in rows})
    latest: dict[int, Revision] = {}
    serving: dict[int, Revision] = {}
    for id_, revision, serves in _revisions(session, [row.id for row in rows], manifests=manifests):
        latest[id_] = revision
        if serves:
            serving[id_] = revision
    versions = _versions(session, [row.id for row in rows if row.canary])
    return [
        Deployment(
            id=row.id,
            uid=row.uid,
            organization=tenants[row.organization_id],
            creator=_member(users[row.creator_id], tenants[row.organization_id]),
            name=row.name,
            port=row.port,
            wanted=DesiredState(row.wanted),
            status=row.status,
            reason=row.reason,
            labels=tuple(row.labels),
            latest=latest[row.id],
            serving=serving.get(row.id),
            created_at=row.created_at,
            updated_at=row.updated_at,
            dev=row.dev,
            host=row.host,
            parent_id=row.parent_id,
            canary=row.canary,
            versions=versions.get(row.id, ()),
        )
        for row in rows
        if row.id in latest
    ]


def _organizations(session: Session, ids: set[int]) -> Mapping[int, Organization]:
    rows = session.scalars(select(OrganizationRow).where(OrganizationRow.id.in_(ids)))
    return {row.id: organization_record(row) for row in rows}


def _users(session: Session, ids: set[int]) -> Mapping[int, Row[Any]]:
    columns = UserRow.__table__.columns
    return {row.id: row for row in session.execute(select(*columns).where(UserRow.id.in_(ids)))}


def _member(user: Row[Any], organization: Organization) -> User:
    return User(user.id, user.uid, user.name, user.email, organization)


def _revisions(
    session: Session, deployments: Sequence[int], *, manifests: bool
) -> Iterable[tuple[int, Revision, bool]]:
    """The latest and the serving revisions of these deployments, the older first, each with its
    deployment and whether it serves."""
    newest = (
        select(RevisionRow.deployment_id, func.max(RevisionRow.number))
        .where(RevisionRow.deployment_id.in_(deployments))
        .group_by(RevisionRow.deployment_id)
        .subquery()
    )
    rows = session.execute(
        select(*RevisionRow.__table__.columns)
        .join(newest, RevisionRow.deployment_id == newest.c[0])
        .where(or_(RevisionRow.number == newest.c[1], RevisionRow.serving))
        .order_by(RevisionRow.number)
    ).all()
    bentos = _bentos(session, {row.bento_id for row in rows}, manifests=manifests)
    for row in rows:
        yield row.deployment_id, revision_record(row, bentos[row.bento_id]), row.serving


def _bentos(session: Session, ids: set[int], *, manifests: bool) -> Mapping[int, Artifact]:
    columns = [
        column
        for column in ArtifactRow.__table__.columns
        if manifests or column.name != ArtifactRow.manifest.key
    ]
    rows = session.execute(select(*columns).where(ArtifactRow.id.in_(ids))).all()
    wanted = {row.repository_id for row in rows}
    repositories = {
        row.id: repository_record(row)
        for row in session.scalars(select(RepositoryRow).where(RepositoryRow.id.in_(wanted)))
    }
    return {
        row.id: artifact_record(row, repositories[row.repository_id], manifest=manifests)
        for row in rows
    }


def _versions(session: Session, deployments: Sequence[int]) -> dict[int, tuple[Deployment, ...]]:
    """The versions of these deployments' canaries, by deployment."""
    if not deployments:
        return {}
    rows = session.scalars(
        select(DeploymentRow)
        .where(
            DeploymentRow.parent_id.in_(deployments), DeploymentRow.wanted != DesiredState.DELETED
        )
        .order_by(DeploymentRow.id)
    ).all()
    found: dict[int, tuple[Deployment, ...]] = {}
    for version in deployment_records(session, rows):
        if version.parent_id is not None:
            found[version.parent_id] = (*found.get(version.parent_id, ()), version)
    return found


def revision_record(row: RevisionRow | Row[Any], bento: Artifact | None = None) -> Revision:
    """The record, with its bento, which an object of the ORM knows. A code space's bento has the
    files that this revision runs."""
    bento = artifact_record(row.bento) if bento is None else bento
    return Revision(
        id=row.id,
        uid=row.uid,
        number=row.number,
        config=row.config,
        bento=replace(bento, files=row.files) if row.files else bento,
        outcome=RolloutOutcome(row.outcome),
        reason=row.reason,
        log_tail=tuple(row.log_tail),
        ports=row.ports,
        created_at=row.created_at,
        by=row.by,
        paused=row.paused,
        progress=row.progress,
    )
