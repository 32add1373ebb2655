"""What organizations may have of everything."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from hotplate.autoscaler.sharing.allocation import NO_QUOTA, Quota
from hotplate.autoscaler.sharing.amounts import NOTHING, Amounts, amount_text, over
from hotplate.platform.errors import NotFound, QuotaExceeded
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import DesiredState
from hotplate.platform.store.tables import DeploymentRow, OrganizationRow, QuotaRow

LIMITS = (*Amounts._fields, "standby")
"""The members of a quota that may be unlimited."""


class Quotas(StorePart):
    """Quotas by organization; one that has none may have as much as there is."""

    def all(self) -> dict[str, Quota]:
        """Those that were set, by the organization's name."""
        with self._database.session() as session:
            return {row.organization.name: _quota(row) for row in session.scalars(select(QuotaRow))}

    def get(self, organization: str) -> Quota:
        """Raises NotFound where there is no such organization."""
        with self._database.session() as session:
            row = session.get(QuotaRow, _organization(session, organization).id)
            return NO_QUOTA if row is None else _quota(row)

    def organizations(self) -> list[str]:
        """The names of all."""
        with self._database.session() as session:
            query = select(OrganizationRow.name).where(OrganizationRow.deleted_at.is_(None))
            return list(session.scalars(query.order_by("name")))

    def set(self, organization: str, changes: Mapping[str, float]) -> Quota:
        """Changes some of `LIMITS` (infinite = unlimited), `weight`, `priority`; the others stay.

        What runs beyond a quota that became smaller is given back by the controller. Raises
        NotFound where there is no such organization.
        """

        def change(session: Session) -> Quota:
            owner = _organization(session, organization)
            row = session.get(QuotaRow, owner.id)
            row = row or QuotaRow(
                organization=owner, weight=NO_QUOTA.weight, priority=NO_QUOTA.priority
            )
            session.add(row)
            for name, value in changes.items():
                setattr(row, name, value if math.isfinite(value) else None)
            session.flush()
            told = {
                name: value if math.isfinite(value) else None for name, value in changes.items()
            }
            record_audit(session, "quota.update", organization, told, organization)
            return _quota(row)

        return self._database.settle_races(change)


def reserve(session: Session, row: DeploymentRow, least: Amounts) -> None:
    """Record what a deployment always needs, if its organization's quota permits that.

    Concurrent callers wait here for each other. What an earlier, larger quota permitted may stay.
    Raises QuotaExceeded.
    """
    # The lock of the organization's row; SQLite lets one transaction in at a time anyway.
    session.execute(
        select(OrganizationRow.id)
        .where(OrganizationRow.id == row.organization_id)
        .with_for_update()
    )
    quota = session.get(QuotaRow, row.organization_id)
    before = Amounts(**row.least) if row.least and row.wanted == DesiredState.RUNNING else NOTHING
    if quota is not None:
        others = _others(session, row)
        limit = _quota(quota).limit
        for dimension, need in enumerate(least):
            needed = others[dimension] + need
            if need > before[dimension] and over(needed, limit[dimension]):
                need_text, others_text, limit_text = (
                    amount_text(dimension, amount)
                    for amount in (need, others[dimension], limit[dimension])
                )
                beside = (
                    f", and others of the organization {others_text}" if others[dimension] else ""
                )
                raise QuotaExceeded(
                    f"deployment {row.name!r} always needs {need_text}{beside}; the quota of "
                    f"organization {row.organization.name!r} is {limit_text}: set a smaller "
                    "min_replicas, or a larger quota (`hotplate quota set`)"
                )
    row.least = least._asdict()


def _others(session: Session, row: DeploymentRow) -> Amounts:
    """What the organization's other deployments always need."""
    taken = session.scalars(
        select(DeploymentRow.least).where(
            DeploymentRow.organization_id == row.organization_id,
            DeploymentRow.wanted == DesiredState.RUNNING,
            DeploymentRow.id != row.id,
        )
    )
    added = NOTHING
    for least in taken:
        added = added.plus(Amounts(**least))
    return added


def _organization(session: Session, name: str) -> OrganizationRow:
    query = select(OrganizationRow).where(OrganizationRow.name == name)
    row = session.scalar(query.where(OrganizationRow.deleted_at.is_(None)))
    if row is None:
        raise NotFound(f"organization {name!r:.80} does not exist")
    return row


def _quota(row: QuotaRow) -> Quota:
    def limit(name: str) -> float:
        value: float | None = getattr(row, name)
        return math.inf if value is None else value

    amounts = Amounts(*(limit(name) for name in Amounts._fields))
    return Quota(amounts, limit("standby"), row.weight, row.priority)
