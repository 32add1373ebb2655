"""Organizations: made, described, listed, and deleted with all that is their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, ScalarSelect, delete, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.identities import (
    keep_an_operator,
    named_organization,
    organization_record,
)
from hotplate.platform.store.records import ORGANIZATION, DesiredState, Organization
from hotplate.platform.store.tables import (
    ArtifactRow,
    DeploymentRow,
    MembershipRow,
    OrganizationRow,
    RepositoryRow,
    SecretRow,
    SignInRow,
    TokenRow,
    UserRow,
    utc_now,
)

NAMES_SHOWN = 5
"""Of many deployments, in a sentence."""
MADE_BY_SOMEBODY = (DeploymentRow, SecretRow)
"""What names its creator, who stays as long as it is there."""


@dataclass(frozen=True)
class OrganizationSummary:
    organization: Organization
    members: int
    deployments: int


class Organizations(StorePart):
    """The organizations that share an installation."""

    def create(self, name: str, description: str = "") -> Organization:
        """A new organization without members. Raises Conflict."""

        def add(session: Session) -> Organization:
            row = session.scalar(select(OrganizationRow).where(OrganizationRow.name == name))
            if row is not None and row.deleted_at is not None:
                raise Conflict(
                    f"organization {name!r} is still being deleted; wait until its deployments "
                    "have ended, or choose another name"
                )
            if row is not None:
                raise Conflict(f"organization {name!r} already exists; choose another name")
            row = OrganizationRow(name=name, description=description)
            session.add(row)
            session.flush()
            record_audit(session, "organization.create", name, organization=name)
            return organization_record(row)

        return self._database.settle_races(add)

    def describe(self, name: str, description: str) -> Organization:
        """Sets an organization's description. Raises NotFound."""
        with self._database.session() as session:
            row = _existing(session, name)
            row.description = description
            changes = {"description": description}
            record_audit(session, "organization.update", name, changes, name)
            return organization_record(row)

    def organization(self, name: str) -> Organization:
        """Raises NotFound."""
        with self._database.session() as session:
            return organization_record(_existing(session, name))

    def organizations(self, user_id: int | None = None) -> list[OrganizationSummary]:
        """All of them by name; of a user, those that they are a member of."""
        members = _count(MembershipRow.organization_id)
        deployments = _count(DeploymentRow.organization_id, *_ARE_THERE)
        query = select(OrganizationRow, members, deployments).order_by(OrganizationRow.name)
        query = query.where(OrganizationRow.deleted_at.is_(None))
        if user_id is not None:
            mine = select(MembershipRow.organization_id).where(MembershipRow.user_id == user_id)
            query = query.where(OrganizationRow.id.in_(mine))
        with self._database.session() as session:
            return [
                OrganizationSummary(organization_record(row), members, deployments)
                for row, members, deployments in session.execute(query)
            ]

    def all(self) -> list[Organization]:
        """Those too whose deployments still end."""
        with self._database.session() as session:
            return list(map(organization_record, session.scalars(select(OrganizationRow))))

    def summary(self, organization: Organization) -> OrganizationSummary:
        """Raises NotFound where it has gone."""
        members = _count(MembershipRow.organization_id)
        deployments = _count(DeploymentRow.organization_id, *_ARE_THERE)
        query = select(OrganizationRow, members, deployments)
        with self._database.session() as session:
            found = session.execute(query.where(OrganizationRow.id == organization.id)).first()
            if found is None:
                raise _no_organization(organization.name)
            return OrganizationSummary(organization_record(found[0]), found[1], found[2])

    def delete(self, name: str, *, force: bool) -> list[int]:
        """Deletes an organization with all that is its own, and people who are in no other one: at
        once for everybody, though its deployments still end. Answers the ids of these, which the
        controller tears down; `finish_deletions` does the rest.

        Raises NotFound; Conflict for the operator's own, and without `force` while it has
        deployments.
        """
        if name == ORGANIZATION:
            raise Conflict(
                f"organization {name!r} is that of the installation's operator and cannot be "
                "deleted; delete its deployments, bentos and models instead"
            )
        with self._database.session() as session:
            row = _existing(session, name)
            mine = DeploymentRow.organization_id == row.id
            running = session.scalars(
                select(DeploymentRow).where(mine, DeploymentRow.wanted != DesiredState.DELETED)
            ).all()
            names = sorted(each.name for each in running if each.parent_id is None)
            if running and not force:
                raise Conflict(
                    f"organization {name!r} has deployments ({_some(names)}); delete them "
                    f"before, or use 'hotplate org delete {name} --force', which deletes them too"
                )
            for deployment in running:
                deployment.wanted, deployment.status = DesiredState.DELETED, "terminating"
                add_event_row(session, deployment.id, "Deleted", "its organization is deleted")
            here = select(MembershipRow.user_id).where(MembershipRow.organization_id == row.id)
            elsewhere = select(MembershipRow.user_id).where(MembershipRow.organization_id != row.id)
            only_here = session.scalars(here.where(MembershipRow.user_id.not_in(elsewhere))).all()
            keep_an_operator(session, only_here, f"organization {name!r} cannot be deleted")
            row.deleted_at = utc_now()
            changes = {"deployments": names}
            record_audit(session, "organization.delete", name, changes, name)
            for table in (TokenRow, SignInRow, MembershipRow):
                session.execute(delete(table).where(table.organization_id == row.id))
            return [deployment.id for deployment in running]

    def finish_deletions(self) -> None:
        """Removes organizations that were deleted and whose deployments have all ended."""
        remaining = select(DeploymentRow.organization_id)
        with self._database.session() as session:
            query = select(OrganizationRow.id).where(
                OrganizationRow.deleted_at.is_not(None), OrganizationRow.id.not_in(remaining)
            )
            for organization_id in session.scalars(query).all():
                _delete_contents(session, organization_id)
                _rehome(session, organization_id)
                session.execute(
                    delete(OrganizationRow).where(OrganizationRow.id == organization_id)
                )


_ARE_THERE = (DeploymentRow.parent_id.is_(None), DeploymentRow.wanted != DesiredState.DELETED)
"""Of deployments: those that people see, no versions of them, and none that ends."""


def _count(
    column: InstrumentedAttribute[int], *conditions: ColumnElement[bool]
) -> ScalarSelect[int]:
    """How many rows of its table belong to the organization of the query around it."""
    counted = select(func.count()).where(column == OrganizationRow.id, *conditions)
    return counted.correlate(OrganizationRow).scalar_subquery()


def _some(names: Sequence[str]) -> str:
    """The first of them."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more


def _existing(session: Session, name: str) -> OrganizationRow:
    row = named_organization(session, name)
    if row is None:
        raise _no_organization(name)
    return row


def _no_organization(name: str) -> NotFound:
    return NotFound(f"organization {name!r:.80} does not exist")


def _rehome(session: Session, organization_id: int) -> None:
    """Members of an organization that goes: at home in another one of theirs, or gone too."""
    for user in session.scalars(select(UserRow).where(UserRow.organization_id == organization_id)):
        other = session.scalar(
            select(MembershipRow.organization_id)
            .where(
                MembershipRow.user_id == user.id,
                MembershipRow.organization_id != organization_id,
            )
            .limit(1)
        ) or next(filter(None, (_made(session, row, user.id) for row in MADE_BY_SOMEBODY)), None)
        if other is None:
            session.delete(user)
        else:
            user.organization_id = other
    session.flush()


def _made(session: Session, row: type[DeploymentRow] | type[SecretRow], user_id: int) -> int | None:
    """An organization in which the user has made such a thing."""
    return session.scalar(select(row.organization_id).where(row.creator_id == user_id).limit(1))


def _delete_contents(session: Session, organization_id: int) -> None:
    """Deletes its bentos and models, whose files go with the next sweep, and its secrets, which
    name who made them. All else refers to the organization with `ON DELETE CASCADE`."""
    session.execute(delete(SecretRow).where(SecretRow.organization_id == organization_id))
    mine = select(RepositoryRow.id).where(RepositoryRow.organization_id == organization_id)
    session.execute(delete(ArtifactRow).where(ArtifactRow.repository_id.in_(mine)))
    session.execute(delete(RepositoryRow).where(RepositoryRow.organization_id == organization_id))
