"""Uploads under way, and what becomes of a version when one ends."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, delete, or_, select

from hotplate.platform.store.artifacts import artifact_record
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import Artifact, UploadRecord
from hotplate.platform.store.tables import ArtifactRow, UploadRow, utc_now


class Uploads(StorePart):
    """Their parts lie in the blob store under their id."""

    def start(self, artifact_id: int) -> Artifact:
        """Marks an upload as under way. A version that is complete stays so until replaced."""
        with self._database.session() as session:
            row = session.get_one(ArtifactRow, artifact_id)
            row.upload_started_at = utc_now()
            row.upload_finished_at = None
            row.upload_finished_reason = ""
            if not row.files:
                row.upload_status = "uploading"
            session.flush()
            return artifact_record(row)

    def finish(self, artifact_id: int, files: str, size_bytes: int) -> Artifact:
        """The files are unpacked: from now on these are the version's files."""
        with self._database.session() as session:
            row = session.get_one(ArtifactRow, artifact_id)
            row.files, row.size_bytes = files, size_bytes
            row.upload_status, row.upload_finished_reason = "success", ""
            row.upload_finished_at = utc_now()
            session.flush()
            artifact = artifact_record(row)
            changes = {"files": files, "size_bytes": size_bytes}
            record_audit(session, f"{artifact.repository.kind}.upload", artifact.tag, changes)
            return artifact

    def fail(self, artifact_id: int, reason: str) -> Artifact:
        """Keeps the reason. A version that was complete before stays usable with its old files."""
        with self._database.session() as session:
            row = session.get_one(ArtifactRow, artifact_id)
            row.upload_status = "success" if row.files else "failed"
            row.upload_finished_reason = reason
            row.upload_finished_at = utc_now()
            session.flush()
            return artifact_record(row)

    def open(self, artifact_id: int, resume: bool = True) -> UploadRecord:
        """An upload whose parts are kept until it is closed.

        With `resume`, the one that is open already, if any: a second try replaces its parts one
        by one instead of leaving them on disk.
        """
        with self._database.session() as session:
            row = None
            if resume:
                row = session.scalar(
                    select(UploadRow)
                    .where(UploadRow.artifact_id == artifact_id)
                    .order_by(UploadRow.created_at.desc())
                    .limit(1)
                )
            row = row or UploadRow(artifact=session.get_one(ArtifactRow, artifact_id))
            session.add(row)
            session.flush()
            return _upload_record(row)

    def get(self, upload_id: str) -> UploadRecord | None:
        """The upload while it is open."""
        with self._database.session() as session:
            row = session.get(UploadRow, upload_id)
            return None if row is None else _upload_record(row)

    def touch(self, upload_id: str) -> UploadRecord | None:
        """The upload while it is open, of which another part is to come: it is as if begun now."""
        with self._database.session() as session:
            row = session.get(UploadRow, upload_id)
            if row is None:
                return None
            row.created_at = utc_now()
            session.flush()
            return _upload_record(row)

    def ids(self) -> set[str]:
        """Those of all that are open."""
        with self._database.session() as session:
            return set(session.scalars(select(UploadRow.id)))

    def stale(self, moment: datetime) -> list[UploadRecord]:
        """Uploads begun, or gone on with, before `moment`, and those whose version has been
        finished since.

        A process that is killed between the two last steps of an upload leaves such a one.
        """
        finished = and_(
            ArtifactRow.upload_status == "success",
            ArtifactRow.upload_finished_reason == "",
            ArtifactRow.upload_finished_at >= UploadRow.created_at,
        )
        with self._database.session() as session:
            rows = session.scalars(
                select(UploadRow)
                .join(UploadRow.artifact)
                .where(or_(UploadRow.created_at < moment, finished))
            )
            return [_upload_record(row) for row in rows]

    def close(self, upload_id: str) -> None:
        """Its parts are no longer wanted."""
        with self._database.session() as session:
            session.execute(delete(UploadRow).where(UploadRow.id == upload_id))


def _upload_record(row: UploadRow) -> UploadRecord:
    return UploadRecord(row.id, artifact_record(row.artifact), row.created_at)
