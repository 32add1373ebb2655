"""Records of deployments, joined with their latest and their serving revision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, joinedload

from hotplate.platform.store.artifacts import artifact_record
from hotplate.platform.store.identities import organization_record, user_record
from hotplate.platform.store.records import Deployment, DesiredState, Revision, RolloutOutcome
from hotplate.platform.store.tables import ArtifactRow, DeploymentRow, RevisionRow


def latest_revision(session: Session, deployment_id: int) -> RevisionRow:
    return session.scalars(
        select(RevisionRow)
        .where(RevisionRow.deployment_id == deployment_id)
        .order_by(RevisionRow.number.desc())
        .limit(1)
    ).one()


def deployment_record(session: Session, row: DeploymentRow) -> Deployment:
    session.flush()
    return deployment_records(session, [row])[0]


def deployment_records(
    session: Session, rows: Sequence[DeploymentRow], *, manifests: bool = True
) -> list[Deployment]:
    """The rows with their latest and serving revisions, in one query for all of them; without the
    `manifests` of their bentos, which are most of what there is to read, where nobody needs them.
    """
    newest = (
        select(RevisionRow.deployment_id, func.max(RevisionRow.number))
        .where(RevisionRow.deployment_id.in_([row.id for row in rows]))
        .group_by(RevisionRow.deployment_id)
        .subquery()
    )
    wanted = session.scalars(
        select(RevisionRow)
        .join(newest, RevisionRow.deployment_id == newest.c[0])
        .where(or_(RevisionRow.number == newest.c[1], RevisionRow.serving))
        .order_by(RevisionRow.number)
        .options(
            *([] if manifests else [joinedload(RevisionRow.bento).defer(ArtifactRow.manifest)])
        )
    )
    latest: dict[int, Revision] = {}
    serving: dict[int, Revision] = {}
    for revision in wanted:
        latest[revision.deployment_id] = revision_record(revision, manifest=manifests)
        if revision.serving:
            serving[revision.deployment_id] = latest[revision.deployment_id]
    versions = _versions(session, [row.id for row in rows if row.canary])
    return [
        _joined(row, latest[row.id], serving.get(row.id), versions.get(row.id, ())) for row in rows
    ]


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


def _joined(
    row: DeploymentRow,
    latest: Revision,
    serving: Revision | None,
    versions: tuple[Deployment, ...],
) -> Deployment:
    return Deployment(
        id=row.id,
        uid=row.uid,
        organization=organization_record(row.organization),
        creator=user_record(row.creator, row.organization),
        name=row.name,
        port=row.port,
        wanted=DesiredState(row.wanted),
        status=row.status,
        reason=row.reason,
        labels=tuple(row.labels),
        latest=latest,
        serving=serving,
        created_at=row.created_at,
        updated_at=row.updated_at,
        dev=row.dev,
        host=row.host,
        parent_id=row.parent_id,
        canary=row.canary,
        versions=versions,
    )


def revision_record(row: RevisionRow, *, manifest: bool = True) -> Revision:
    """A code space's bento has the files that this revision runs."""
    bento = artifact_record(row.bento, manifest=manifest)
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
