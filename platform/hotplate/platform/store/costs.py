"""What deployments took, hour by hour. It stays when a deployment goes, and goes with its
organization."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace

from sqlalchemy import BigInteger, ForeignKey, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from hotplate.platform.store.database import StorePart
from hotplate.platform.store.tables import OrganizationRow, Table


class CostRow(Table):
    """It has a deployment's name and no key, as it outlives it; the name is empty for the
    organization's standbys."""

    __tablename__ = "costs"
    organization_id: Mapped[int] = mapped_column(
        ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    deployment: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, index=True)
    requests: Mapped[int] = mapped_column(BigInteger)
    gpu_busy_s: Mapped[float]
    gpu_idle_s: Mapped[float]
    gpu_starting_s: Mapped[float]
    replica_busy_s: Mapped[float]
    replica_idle_s: Mapped[float]
    replica_starting_s: Mapped[float]
    standby_gpu_s: Mapped[float]
    cost: Mapped[float | None]


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """What a deployment took in an hour, or several together did in some time."""

    requests: int = 0
    gpu_busy_s: float = 0.0
    gpu_idle_s: float = 0.0
    gpu_starting_s: float = 0.0
    replica_busy_s: float = 0.0
    replica_idle_s: float = 0.0
    replica_starting_s: float = 0.0
    standby_gpu_s: float = 0.0
    cost: float | None = None
    """None = nothing of it has a price."""

    def plus(self, other: Consumed) -> Consumed:
        added = {
            name: getattr(self, name) + getattr(other, name) for name in _NAMES if name != "cost"
        }
        known = [each for each in (self.cost, other.cost) if each is not None]
        return replace(self, **added, cost=sum(known) if known else None)


@dataclass(frozen=True)
class Cost:
    """What was taken, by whom and when."""

    organization: str
    deployment: str
    """Empty = standbys of the organization."""
    hour: int
    """When it begins, Unix seconds."""
    taken: Consumed


_NAMES = [field.name for field in fields(Consumed)]
Key = tuple[int, str, int]
"""The organization's id, the deployment's name, and the hour."""


class Costs(StorePart):
    def add(self, taken: Iterable[tuple[Key, Consumed]]) -> None:
        """Adds to what there is; what is of an organization that is gone is dropped."""
        with self._database.session() as session:
            there = set(session.scalars(select(OrganizationRow.id)))
            for (organization, deployment, hour), more in taken:
                if organization not in there:
                    continue
                row = session.get(CostRow, (organization, deployment, hour))
                if row is None:
                    row = CostRow(
                        organization_id=organization, deployment=deployment, hour=hour, **vars(more)
                    )
                    session.add(row)
                    continue
                for name, value in vars(_taken(row).plus(more)).items():
                    setattr(row, name, value)

    def between(
        self, since: float, until: float, organizations: Collection[int] | None = None
    ) -> list[Cost]:
        """Those of the hours that begin in it; None = of all organizations."""
        query = (
            select(CostRow, OrganizationRow.name)
            .join(OrganizationRow, OrganizationRow.id == CostRow.organization_id)
            .where(CostRow.hour >= since, CostRow.hour < until)
            .order_by(CostRow.hour, OrganizationRow.name, CostRow.deployment)
        )
        if organizations is not None:
            query = query.where(CostRow.organization_id.in_(organizations))
        with self._database.session() as session:
            return [
                Cost(name, row.deployment, row.hour, _taken(row))
                for row, name in session.execute(query)
            ]

    def forget(self, before: int) -> None:
        """Drops the hours that begin before that."""
        with self._database.session() as session:
            session.execute(delete(CostRow).where(CostRow.hour < before))


def _taken(row: CostRow) -> Consumed:
    return Consumed(**{name: getattr(row, name) for name in _NAMES})
