"""The files of code spaces, one by one as `bentoml code` has sent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from hotplate.platform.spec.code_files import CodeFile
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.canaries import RevisionDraft, add_revision
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.deployment_records import deployment_record
from hotplate.platform.store.deployments import existing_row
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.records import Deployment, DesiredState
from hotplate.platform.store.tables import Table

SHOWN_MAX = 100
"""Paths of one change that the audit names."""


class CodeFileRow(Table):
    """One file of a code space as it is now."""

    __tablename__ = "code_files"
    deployment_id: Mapped[int] = mapped_column(
        ForeignKey("deployments.id", ondelete="CASCADE"), primary_key=True
    )
    path: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    md5: Mapped[str]
    chunks: Mapped[list[Any]]
    changed_at: Mapped[float]


class CodeFiles(StorePart):
    """Reads and changes what one code space has. They go with their deployment."""

    def of_deployment(self, deployment_id: int) -> list[CodeFile]:
        """By path."""
        with self._database.session() as session:
            rows = session.scalars(
                select(CodeFileRow)
                .where(CodeFileRow.deployment_id == deployment_id)
                .order_by(CodeFileRow.path)
            )
            return [
                CodeFile(row.path, row.size_bytes, row.md5, tuple(row.chunks), row.changed_at)
                for row in rows
            ]

    def change(
        self,
        deployment_id: int,
        put: Sequence[CodeFile],
        gone: Sequence[str],
        tree: str,
        draft: RevisionDraft | None,
    ) -> Deployment:
        """Keep what was sent, with the digest of the `tree` that it is part of; with `draft`, a
        revision begins to run it. All of it is one transaction: a kill leaves all or nothing.

        Raises NotFound where the deployment was deleted in the meantime.
        """

        def write(session: Session) -> Deployment:
            row = existing_row(session, deployment_id)
            paths = [*gone, *(file.path for file in put)]
            for start in range(0, len(paths), 500):
                session.execute(
                    delete(CodeFileRow).where(
                        CodeFileRow.deployment_id == deployment_id,
                        CodeFileRow.path.in_(paths[start : start + 500]),
                    )
                )
            session.add_all(
                CodeFileRow(
                    deployment_id=deployment_id,
                    path=file.path,
                    size_bytes=file.size_bytes,
                    md5=file.md5,
                    chunks=list(file.chunks),
                    changed_at=file.changed_at,
                )
                for file in put
            )
            row.tree = tree
            changes = {"sent": [file.path for file in put][:SHOWN_MAX], "removed": gone[:SHOWN_MAX]}
            record_audit(session, "deployment.files", row.name, changes)
            if draft is not None:
                number = add_revision(session, row, draft)
                row.wanted, row.status, row.reason = DesiredState.RUNNING, "deploying", ""
                files = len(put) + len(gone)
                changed = f"{files} file{'' if files == 1 else 's'} changed: revision {number}"
                add_event_row(session, row.id, "CodeChanged", changed)
            return deployment_record(session, row)

        return self._database.settle_races(write)
