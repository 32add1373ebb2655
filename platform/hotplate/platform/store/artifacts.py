"""Repositories and their versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.spec.bento_manifest import model_tags
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.list_filter import ALL, ListFilter
from hotplate.platform.store.records import Artifact, Kind, Repository
from hotplate.platform.store.tables import (
    ArtifactRow,
    DeploymentRow,
    OrganizationRow,
    RepositoryRow,
    RevisionRow,
    utc_now,
)
from hotplate.serving.gateway.protocol.version_mark import VERSION


@dataclass(frozen=True)
class ArtifactDraft:
    """What a client says of a version before it uploads it."""

    version: str
    description: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[Mapping[str, str]] = ()
    build_at: str = ""


class Artifacts(StorePart):
    """Bentos and models. Every reader and writer names the organization that asks."""

    def repository(self, organization_id: int, kind: Kind, name: str) -> Repository:
        """Raises NotFound."""
        with self._database.session() as session:
            return repository_record(_repository_row(session, organization_id, kind, name))

    def ensure_repository(
        self, organization_id: int, kind: Kind, name: str, description: str = ""
    ) -> Repository:
        """The repository of that name, made where there is none (clients race to make it)."""

        def find_or_add(session: Session) -> Repository:
            try:
                row = _repository_row(session, organization_id, kind, name)
            except NotFound:
                row = RepositoryRow(
                    organization_id=organization_id, kind=kind, name=name, description=description
                )
                session.add(row)
                session.flush()
                record_audit(session, f"{kind}_repository.create", name)
            return repository_record(row)

        return self._database.settle_races(find_or_add)

    def get(self, organization_id: int, kind: Kind, name: str, version: str) -> Artifact:
        """Raises NotFound."""
        with self._database.session() as session:
            return artifact_record(_artifact_row(session, organization_id, kind, name, version))

    def page(
        self,
        organization_id: int,
        kind: Kind,
        name: str = "",
        start: int = 0,
        count: int | None = 100,
        wanted: ListFilter = ALL,
    ) -> tuple[list[Artifact], int]:
        """Versions, newest first, and how many there are. `name` empty = of every repository;
        `count` None = to the last one. The words of `wanted` are parts of `name:version`."""
        tag = RepositoryRow.name + ":" + ArtifactRow.version
        with self._database.session() as session:
            query = (
                select(ArtifactRow)
                .join(ArtifactRow.repository)
                .where(*_of(organization_id, kind, name))
                .where(*wanted.conditions(session, ArtifactRow.labels, tag))
            )
            total = session.scalar(query.with_only_columns(func.count(ArtifactRow.id)))
            rows = session.scalars(query.order_by(ArtifactRow.id.desc()).offset(start).limit(count))
            return [artifact_record(row) for row in rows], total or 0

    def latest(
        self, organization_id: int, kind: Kind, name: str, uploaded: bool = False
    ) -> Artifact | None:
        """The newest version; with `uploaded`, the newest whose files are here."""
        query = (
            select(ArtifactRow)
            .join(ArtifactRow.repository)
            .where(*_of(organization_id, kind, name))
        )
        if uploaded:
            query = query.where(ArtifactRow.files != "")
        with self._database.session() as session:
            row = session.scalar(query.order_by(ArtifactRow.id.desc()).limit(1))
            return None if row is None else artifact_record(row)

    def create(self, organization_id: int, kind: Kind, name: str, draft: ArtifactDraft) -> Artifact:
        """The new version, or the one that is there already: of two racing clients one makes it.

        Raises NotFound where the repository is missing.
        """

        def find_or_add(session: Session) -> Artifact:
            repository = _repository_row(session, organization_id, kind, name)
            row = session.scalar(
                select(ArtifactRow).where(
                    ArtifactRow.repository_id == repository.id,
                    ArtifactRow.version == draft.version,
                )
            )
            if row is None:
                row = ArtifactRow(
                    repository=repository,
                    version=draft.version,
                    description=draft.description,
                    manifest=dict(draft.manifest),
                    labels=list(draft.labels),
                    build_at=draft.build_at,
                )
                session.add(row)
                repository.updated_at = utc_now()
                session.flush()
                record_audit(session, f"{kind}.create", f"{name}:{draft.version}")
            return artifact_record(row)

        return self._database.settle_races(find_or_add)

    def exists(self, artifact_id: int, uid: str) -> bool:
        """Whether there is such a version, of an organization that is not being deleted. Another
        one may have its id later, and none its uid."""
        query = (
            select(ArtifactRow.id)
            .join(ArtifactRow.repository)
            .join(OrganizationRow, OrganizationRow.id == RepositoryRow.organization_id)
            .where(ArtifactRow.id == artifact_id, ArtifactRow.uid == uid)
            .where(OrganizationRow.deleted_at.is_(None))
        )
        with self._database.session() as session:
            return session.scalar(query) is not None

    def update(
        self,
        artifact_id: int,
        description: str | None = None,
        manifest: Mapping[str, Any] | None = None,
        labels: Sequence[Mapping[str, str]] | None = None,
    ) -> Artifact:
        """Replaces what is given; None leaves a field as it is."""
        with self._database.session() as session:
            row = session.get_one(ArtifactRow, artifact_id)
            if description is not None:
                row.description = description
            if manifest is not None:
                row.manifest = dict(manifest)
            if labels is not None:
                row.labels = list(labels)
            session.flush()
            artifact = artifact_record(row)
            record_audit(session, f"{artifact.repository.kind}.update", artifact.tag)
            return artifact

    def delete(self, artifact_id: int) -> None:
        """Removes a version. Raises Conflict, with by whom it is needed, while a deployment keeps a
        revision with it: of that bento, or of a bento that has that model."""
        with self._database.session() as session:
            row = session.get(ArtifactRow, artifact_id)
            if row is None:
                return
            repository = row.repository
            tag = f"{repository.name}:{row.version}"
            needs = _is_needed(session, row)
            if needs is not None:
                name, number = needs
                deployment, _, version = name.partition(VERSION)
                what = f"version {version!r} of deployment" if version else "deployment"
                raise Conflict(
                    f"{repository.kind} '{tag}' is needed by revision {number} of {what} "
                    f"{deployment!r}; delete the {'version' if version else 'deployment'}, or wait "
                    "until it keeps that revision no longer (revisions_kept)"
                )
            session.delete(row)
            record_audit(session, f"{repository.kind}.delete", tag)

    def users(self, artifact: Artifact) -> list[str]:
        """The names of the deployments that keep a revision which needs this version."""
        with self._database.session() as session:
            row = session.get(ArtifactRow, artifact.id)
            needs = [] if row is None else _needs(session, row)
            return sorted({name.partition(VERSION)[0] for name, _ in needs})

    def named_files(self) -> frozenset[str]:
        """The manifests that versions, and code spaces with their revisions, name, of every
        organization: their files are kept."""
        with self._database.session() as session:
            columns = ArtifactRow.files, RevisionRow.files, DeploymentRow.tree
            return frozenset(
                digest
                for column in columns
                for digest in session.scalars(select(column).where(column != ""))
            )


def repository_record(row: RepositoryRow) -> Repository:
    return Repository(
        id=row.id,
        uid=row.uid,
        organization_id=row.organization_id,
        kind=Kind(row.kind),
        name=row.name,
        description=row.description,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def artifact_record(
    row: ArtifactRow | Row[Any], repository: Repository | None = None, *, manifest: bool = True
) -> Artifact:
    """The record, in its repository, which an object of the ORM knows; without its `manifest`,
    which may be large, where nobody needs it."""
    return Artifact(
        id=row.id,
        uid=row.uid,
        repository=repository_record(row.repository) if repository is None else repository,
        version=row.version,
        description=row.description,
        manifest=row.manifest if manifest else {},
        labels=tuple(row.labels),
        build_at=row.build_at,
        upload_status=row.upload_status,
        upload_finished_reason=row.upload_finished_reason,
        files=row.files,
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        updated_at=row.updated_at,
        upload_started_at=row.upload_started_at,
        upload_finished_at=row.upload_finished_at,
    )


def _is_needed(session: Session, row: ArtifactRow) -> tuple[str, int] | None:
    """A deployment and the number of a revision of it that needs this version."""
    return next(_needs(session, row), None)


def _needs(session: Session, row: ArtifactRow) -> Iterator[tuple[str, int]]:
    """Each of these."""
    query = (
        select(DeploymentRow.name, RevisionRow.number, ArtifactRow.manifest)
        .join(RevisionRow, RevisionRow.deployment_id == DeploymentRow.id)
        .join(ArtifactRow, ArtifactRow.id == RevisionRow.bento_id)
        .where(DeploymentRow.organization_id == row.repository.organization_id)
        .order_by(DeploymentRow.name, RevisionRow.number.desc())
    )
    is_bento = row.repository.kind == Kind.BENTO
    if is_bento:
        query = query.where(ArtifactRow.id == row.id)
    tag = f"{row.repository.name}:{row.version}"
    for name, number, manifest in session.execute(query):
        if is_bento or tag in model_tags(manifest):
            yield name, number


def _of(organization_id: int, kind: Kind, name: str) -> list[ColumnElement[bool]]:
    """What a repository is found by. `name` empty = every repository."""
    found = [RepositoryRow.organization_id == organization_id, RepositoryRow.kind == kind]
    return [*found, RepositoryRow.name == name] if name else found


def _repository_row(session: Session, organization_id: int, kind: Kind, name: str) -> RepositoryRow:
    row = session.scalar(select(RepositoryRow).where(*_of(organization_id, kind, name)))
    if row is None:
        raise NotFound(f"{kind} repository {name!r:.80} does not exist in this organization")
    return row


def _artifact_row(
    session: Session, organization_id: int, kind: Kind, name: str, version: str
) -> ArtifactRow:
    row = session.scalar(
        select(ArtifactRow)
        .join(ArtifactRow.repository)
        .where(*_of(organization_id, kind, name), ArtifactRow.version == version)
    )
    if row is None:
        raise NotFound(f"{kind} {f'{name}:{version}'!r:.280} does not exist in this organization")
    return row
