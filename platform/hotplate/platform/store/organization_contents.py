"""What an organization has beside its deployments, and goes with it."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from hotplate.platform.store.tables import ArtifactRow, RepositoryRow


def delete_contents(session: Session, organization_id: int) -> None:
    """Deletes its bentos and models; their files go with the next sweep. All else refers to the
    organization with `ON DELETE CASCADE`."""
    mine = select(RepositoryRow.id).where(RepositoryRow.organization_id == organization_id)
    session.execute(delete(ArtifactRow).where(ArtifactRow.repository_id.in_(mine)))
    session.execute(delete(RepositoryRow).where(RepositoryRow.organization_id == organization_id))
