"""What deployments did, step by step: blocks of points, which `hotplate.platform.series` reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, ForeignKey, Index, delete, func, insert, select
from sqlalchemy.orm import Mapped, mapped_column

from hotplate.platform.errors import NotFound
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import DesiredState
from hotplate.platform.store.tables import DeploymentRow, OrganizationRow, Table
from hotplate.serving.gateway.protocol.version_mark import VERSION

TOGETHER = 500
"""Keys in one condition: databases have limits."""


class DeploymentSeriesRow(Table):
    """Points of a deployment, or of a version of a canary, that follow each other."""

    __tablename__ = "deployment_series"
    __table_args__ = (Index(None, "step_s", "at"),)
    subject_id: Mapped[int] = mapped_column(
        "deployment_id",
        ForeignKey("deployments.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    step_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """How far the points are apart."""
    at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """When the block begins, Unix seconds."""
    points: Mapped[bytes]


class OrganizationSeriesRow(Table):
    """The same of all deployments of an organization together."""

    __tablename__ = "organization_series"
    __table_args__ = (Index(None, "step_s", "at"),)
    subject_id: Mapped[int] = mapped_column(
        "organization_id",
        ForeignKey("organizations.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    step_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    points: Mapped[bytes]


class Block(NamedTuple):
    """The points of a subject from `at` on, `step_s` apart."""

    subject_id: int
    step_s: int
    at: int
    points: bytes


class Series(StorePart):
    """That of all deployments, or of all organizations, whose ids are the subjects'."""

    table: type[DeploymentSeriesRow] | type[OrganizationSeriesRow]
    _owners: type[DeploymentRow] | type[OrganizationRow]

    def put(self, blocks: Iterable[Block]) -> None:
        """Writes blocks, in place of those that there are of the same time. What is of a subject
        that is gone is dropped."""
        by_key = {block[:3]: block for block in blocks}
        there = self._there({block.subject_id for block in by_key.values()})
        kept = [block for block in by_key.values() if block.subject_id in there]
        if not kept:
            return
        table = self.table
        with self._database.session() as session:
            for step_s, at in {(block.step_s, block.at) for block in kept}:
                ids = [b.subject_id for b in kept if (b.step_s, b.at) == (step_s, at)]
                for some in _parts(ids):
                    session.execute(
                        delete(table).where(
                            table.step_s == step_s, table.at == at, table.subject_id.in_(some)
                        )
                    )
            session.execute(insert(table), [block._asdict() for block in kept])

    def between(
        self, step_s: int, since: int, until: int, subjects: Collection[int] | None = None
    ) -> list[Block]:
        """Blocks that begin from `since` on and before `until`, by when they begin; None = of all
        subjects."""
        table = self.table
        query = (
            select(table.subject_id, table.step_s, table.at, table.points)
            .where(table.step_s == step_s, table.at >= since, table.at < until)
            .order_by(table.at)
        )
        with self._database.session() as session:
            if subjects is None:
                return [Block(*row) for row in session.execute(query)]
            return [
                Block(*row)
                for some in _parts(sorted(subjects))
                for row in session.execute(query.where(table.subject_id.in_(some)))
            ]

    def last_before(self, step_s: int, before: int, subjects: Collection[int]) -> list[Block]:
        """The last block of each subject that begins before that."""
        table = self.table
        found = []
        with self._database.session() as session:
            for subject in subjects:
                row = session.execute(
                    select(table.subject_id, table.step_s, table.at, table.points)
                    .where(table.subject_id == subject, table.step_s == step_s, table.at < before)
                    .order_by(table.at.desc())
                    .limit(1)
                ).first()
                found += [] if row is None else [Block(*row)]
        return found

    def first_at(self, step_s: int, since: int) -> int | None:
        """When the oldest block of a step begins that does so from `since` on; None = none does."""
        at = self.table.at
        with self._database.session() as session:
            return session.scalar(
                select(func.min(at)).where(self.table.step_s == step_s, at >= since)
            )

    def last_at(self, step_s: int) -> int | None:
        """When the newest one does."""
        with self._database.session() as session:
            return session.scalar(
                select(func.max(self.table.at)).where(self.table.step_s == step_s)
            )

    def forget(self, step_s: int, before: int) -> None:
        """Drops what begins before that."""
        table = self.table
        with self._database.session() as session:
            session.execute(delete(table).where(table.step_s == step_s, table.at < before))

    def _there(self, subjects: Collection[int]) -> set[int]:
        owners = self._owners
        with self._database.session() as session:
            return {
                found
                for some in _parts(sorted(subjects))
                for found in session.scalars(select(owners.id).where(owners.id.in_(some)))
            }


class DeploymentSeries(Series):
    table = DeploymentSeriesRow
    _owners = DeploymentRow

    def subjects(self, organization_id: int, name: str) -> dict[str, tuple[int, datetime]]:
        """The id of the deployment of that name, and when it was made, as "", and of each version
        of its canary. Raises NotFound, also for one that is being torn down.

        Every page of a deployment asks, again and again: so no more of it is read.
        """
        row = DeploymentRow
        there = select(row.name, row.id, row.created_at).where(row.wanted != DesiredState.DELETED)
        of_name = there.where(row.organization_id == organization_id, row.name == name)
        with self._database.session() as session:
            own = session.execute(of_name.where(row.parent_id.is_(None))).first()
            if own is None:
                raise NotFound(f"deployment {name!r:.80} does not exist in this organization")
            versions = session.execute(there.where(row.parent_id == own.id))
            return {
                each.name.partition(VERSION)[2]: (each.id, each.created_at)
                for each in (own, *versions)
            }


class OrganizationSeries(Series):
    table = OrganizationSeriesRow
    _owners = OrganizationRow


def _parts(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER)]
