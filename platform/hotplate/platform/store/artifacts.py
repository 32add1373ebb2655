"""Repositories, their versions, and uploads under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import NotFound
from hotplate.platform.store.database import Database
from hotplate.platform.store.records import Artifact, Kind, Repository, Upload
from hotplate.platform.store.tables import ArtifactRow, RepositoryRow, UploadRow, utc_now


@dataclass(frozen=True)
class ArtifactDraft:
    """What a client says of a version before it uploads it."""

    version: str
    description: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    labels: Sequence[Mapping[str, str]] = ()
    build_at: str = ""


class Artifacts(Database):
    """Bentos and models. Every reader and writer names the organization that asks."""

    def repository(self, organization_id: int, kind: Kind, name: str) -> Repository:
        """Raises NotFound."""
        with self._session() as session:
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
            return repository_record(row)

        return self._settle_races(find_or_add)

    def artifact(self, organization_id: int, kind: Kind, name: str, version: str) -> Artifact:
        """Raises NotFound."""
        with self._session() as session:
            return artifact_record(_artifact_row(session, organization_id, kind, name, version))

    def artifacts(
        self, organization_id: int, kind: Kind, name: str = "", start: int = 0, count: int = 100
    ) -> tuple[list[Artifact], int]:
        """Versions, newest first, and how many there are. `name` empty = of every repository."""
        query = (
            select(ArtifactRow)
            .join(ArtifactRow.repository)
            .where(RepositoryRow.organization_id == organization_id, RepositoryRow.kind == kind)
        )
        if name:
            query = query.where(RepositoryRow.name == name)
        with self._session() as session:
            total = session.scalar(select(func.count()).select_from(query.subquery()))
            rows = session.scalars(query.order_by(ArtifactRow.id.desc()).offset(start).limit(count))
            return [artifact_record(row) for row in rows], total or 0

    def latest_artifact(
        self, organization_id: int, kind: Kind, name: str, uploaded: bool = False
    ) -> Artifact | None:
        """The newest version; with `uploaded`, the newest whose files are here."""
        query = (
            select(ArtifactRow)
            .join(ArtifactRow.repository)
            .where(
                RepositoryRow.organization_id == organization_id,
                RepositoryRow.kind == kind,
                RepositoryRow.name == name,
            )
        )
        if uploaded:
            query = query.where(ArtifactRow.files != "")
        with self._session() as session:
            row = session.scalar(query.order_by(ArtifactRow.id.desc()).limit(1))
            return None if row is None else artifact_record(row)

    def create_artifact(
        self, organization_id: int, kind: Kind, name: str, draft: ArtifactDraft
    ) -> Artifact:
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
            return artifact_record(row)

        return self._settle_races(find_or_add)

    def update_artifact(
        self,
        artifact_id: int,
        description: str | None = None,
        manifest: Mapping[str, Any] | None = None,
        labels: Sequence[Mapping[str, str]] | None = None,
    ) -> Artifact:
        """Replaces what is given; None leaves a field as it is."""
        with self._session() as session:
            row = _artifact_by_id(session, artifact_id)
            if description is not None:
                row.description = description
            if manifest is not None:
                row.manifest = dict(manifest)
            if labels is not None:
                row.labels = list(labels)
            session.flush()
            return artifact_record(row)

    def start_upload(self, artifact_id: int) -> Artifact:
        """Marks an upload as under way. A version that is complete stays so until replaced."""
        with self._session() as session:
            row = _artifact_by_id(session, artifact_id)
            row.upload_started_at = utc_now()
            row.upload_finished_at = None
            row.upload_finished_reason = ""
            if not row.files:
                row.upload_status = "uploading"
            session.flush()
            return artifact_record(row)

    def finish_upload(self, artifact_id: int, files: str, size_bytes: int) -> Artifact:
        """The files are unpacked: from now on these are the version's files."""
        with self._session() as session:
            row = _artifact_by_id(session, artifact_id)
            row.files, row.size_bytes = files, size_bytes
            row.upload_status, row.upload_finished_reason = "success", ""
            row.upload_finished_at = utc_now()
            session.flush()
            return artifact_record(row)

    def fail_upload(self, artifact_id: int, reason: str) -> Artifact:
        """Keeps the reason. A version that was complete before stays usable with its old files."""
        with self._session() as session:
            row = _artifact_by_id(session, artifact_id)
            row.upload_status = "success" if row.files else "failed"
            row.upload_finished_reason = reason
            row.upload_finished_at = utc_now()
            session.flush()
            return artifact_record(row)

    def open_upload(self, artifact_id: int, resume: bool = True) -> Upload:
        """An upload whose parts are kept until it is closed.

        With `resume`, the one that is open already, if any: a second try replaces its parts one
        by one instead of leaving them on disk.
        """
        with self._session() as session:
            row = None
            if resume:
                row = session.scalar(
                    select(UploadRow)
                    .where(UploadRow.artifact_id == artifact_id)
                    .order_by(UploadRow.created_at.desc())
                    .limit(1)
                )
            row = row or UploadRow(artifact=_artifact_by_id(session, artifact_id))
            session.add(row)
            session.flush()
            return _upload_record(row)

    def upload(self, upload_id: str) -> Upload | None:
        """The upload while it is open."""
        with self._session() as session:
            row = session.get(UploadRow, upload_id)
            return None if row is None else _upload_record(row)

    def uploads_over(self, moment: datetime) -> list[Upload]:
        """Uploads begun before `moment`, and those whose version has been finished since.

        A process that is killed between the two last steps of an upload leaves such a one.
        """
        finished = and_(
            ArtifactRow.upload_status == "success",
            ArtifactRow.upload_finished_reason == "",
            ArtifactRow.upload_finished_at >= UploadRow.created_at,
        )
        with self._session() as session:
            rows = session.scalars(
                select(UploadRow)
                .join(UploadRow.artifact)
                .where(or_(UploadRow.created_at < moment, finished))
            )
            return [_upload_record(row) for row in rows]

    def close_upload(self, upload_id: str) -> None:
        """Its parts are no longer wanted."""
        with self._session() as session:
            session.execute(delete(UploadRow).where(UploadRow.id == upload_id))


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


def artifact_record(row: ArtifactRow) -> Artifact:
    return Artifact(
        id=row.id,
        uid=row.uid,
        repository=repository_record(row.repository),
        version=row.version,
        description=row.description,
        manifest=row.manifest,
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


def _upload_record(row: UploadRow) -> Upload:
    return Upload(row.id, artifact_record(row.artifact), row.created_at)


def _repository_row(session: Session, organization_id: int, kind: Kind, name: str) -> RepositoryRow:
    row = session.scalar(
        select(RepositoryRow).where(
            RepositoryRow.organization_id == organization_id,
            RepositoryRow.kind == kind,
            RepositoryRow.name == name,
        )
    )
    if row is None:
        raise NotFound(f"{kind} repository {name!r}: there is none in this organization")
    return row


def _artifact_row(
    session: Session, organization_id: int, kind: Kind, name: str, version: str
) -> ArtifactRow:
    row = session.scalar(
        select(ArtifactRow)
        .join(ArtifactRow.repository)
        .where(
            RepositoryRow.organization_id == organization_id,
            RepositoryRow.kind == kind,
            RepositoryRow.name == name,
            ArtifactRow.version == version,
        )
    )
    if row is None:
        raise NotFound(f"{kind} {f'{name}:{version}'!r}: there is none in this organization")
    return row


def _artifact_by_id(session: Session, artifact_id: int) -> ArtifactRow:
    return session.get_one(ArtifactRow, artifact_id)
