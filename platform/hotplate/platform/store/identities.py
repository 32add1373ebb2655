"""Organizations, the people who are their members, and what each may do there.

A person has one name in the whole installation and may be a member of several organizations, each
of which gives them a role. Whoever may add a person to one organization must not reach another one
by that: what an organization's admin makes for a person (a link, a token) is good in this
organization only, and without an operator's rights.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ScalarSelect, delete, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.history import add_event_row
from hotplate.platform.store.organization_contents import delete_contents
from hotplate.platform.store.records import (
    DesiredState,
    Member,
    MemberRole,
    Organization,
    User,
)
from hotplate.platform.store.tables import (
    DeploymentRow,
    KeyRow,
    MembershipRow,
    OrganizationRow,
    SignInRow,
    TokenRow,
    UserRow,
    utc_now,
)

KEY_BYTES = 32
NAMES_SHOWN = 5
"""Of many deployments, in a sentence."""

ORGANIZATION = "default"
ADMIN = "admin"
"""The first operator and their organization: `hotplate up` makes them."""


@dataclass(frozen=True)
class OrganizationSummary:
    organization: Organization
    members: int
    deployments: int


class Identities(StorePart):
    """Organizations and their members."""

    def ensure_user(
        self, organization: str, name: str, email: str, role: MemberRole = MemberRole.ADMIN
    ) -> User:
        """The member of that name, made (with the organization) where there is none."""

        def find_or_add(session: Session) -> User:
            tenant = _named(session, organization) or OrganizationRow(name=organization)
            session.add(tenant)
            session.flush()
            row = session.scalar(select(UserRow).where(UserRow.name == name))
            row = row or UserRow(organization=tenant, name=name, email=email)
            session.add(row)
            session.flush()
            if session.get(MembershipRow, (tenant.id, row.id)) is None:
                session.add(
                    MembershipRow(organization=tenant, user=row, role=role, email=row.email)
                )
                session.flush()
            return user_record(row, tenant)

        return self._database.settle_races(find_or_add)

    def ensure_operator(self, user: User) -> None:
        """Makes that user an operator where there is none: of a new installation the first."""
        with self._database.session() as session:
            if session.scalar(select(UserRow.id).where(UserRow.operator).limit(1)) is None:
                session.get_one(UserRow, user.id).operator = True

    def only_organization(self) -> Organization | None:
        """The one that there is; None where there are more, or none."""
        with self._database.session() as session:
            query = select(OrganizationRow).where(OrganizationRow.deleted_at.is_(None)).limit(2)
            rows = session.scalars(query).all()
            return organization_record(rows[0]) if len(rows) == 1 else None

    # Organizations -------------------------------------------------------------------------

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
            return organization_record(row)

        return self._database.settle_races(add)

    def describe(self, name: str, description: str) -> Organization:
        """Sets an organization's description. Raises NotFound."""
        with self._database.session() as session:
            row = _existing(session, name)
            row.description = description
            return organization_record(row)

    def organization(self, name: str) -> Organization:
        """Raises NotFound."""
        with self._database.session() as session:
            return organization_record(_existing(session, name))

    def organizations(self, user_id: int | None = None) -> list[OrganizationSummary]:
        """All of them by name; of a user, those that they are a member of."""
        members = _count(MembershipRow.organization_id)
        deployments = _count(DeploymentRow.organization_id)
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

    def summary(self, organization: Organization) -> OrganizationSummary:
        """Raises NotFound where it has gone."""
        members = _count(MembershipRow.organization_id)
        deployments = _count(DeploymentRow.organization_id)
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
            if running and not force:
                raise Conflict(
                    f"organization {name!r} has deployments ({_some(running)}); delete them "
                    f"before, or use 'hotplate org delete {name} --force', which deletes them too"
                )
            for deployment in running:
                deployment.wanted, deployment.status = DesiredState.DELETED, "terminating"
                add_event_row(session, deployment.id, "Deleted", "its organization is deleted")
            row.deleted_at = utc_now()
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
                delete_contents(session, organization_id)
                _rehome(session, organization_id)
                session.execute(
                    delete(OrganizationRow).where(OrganizationRow.id == organization_id)
                )

    # Members -------------------------------------------------------------------------------

    def members(self, organization_id: int) -> list[Member]:
        """All of an organization, by name."""
        with self._database.session() as session:
            rows = session.scalars(
                select(MembershipRow)
                .join(UserRow)
                .where(MembershipRow.organization_id == organization_id)
                .order_by(UserRow.name)
            )
            return [_member_record(row) for row in rows]

    def member(self, organization: Organization, name: str) -> Member:
        """Raises NotFound where nobody of that name is a member."""
        with self._database.session() as session:
            return _member_record(_membership(session, organization, name))

    def put_member(
        self, organization: Organization, name: str, email: str | None, role: MemberRole | None
    ) -> Member:
        """Adds a member or changes one; None = as it is. Raises Conflict for the last admin, and
        NotFound where a new one has no role."""

        def put(session: Session) -> Member:
            user = session.scalar(select(UserRow).where(UserRow.name == name))
            row = None if user is None else session.get(MembershipRow, (organization.id, user.id))
            if row is None and role is None:
                raise _no_member(organization, name)
            if user is None:
                user = UserRow(organization_id=organization.id, name=name, email=email or "")
                session.add(user)
                session.flush()
            if row is None:
                row = MembershipRow(
                    organization_id=organization.id, user_id=user.id, role=role, email=""
                )
                session.add(row)
            elif role is not None and role is not MemberRole.ADMIN:
                _keep_an_admin(session, row, f"its role cannot become {role.value!r}")
            if role is not None:
                row.role = role
            if email is not None:
                row.email = email
            session.flush()
            session.refresh(row)
            return _member_record(row)

        return self._database.settle_races(put)

    def remove_member(self, organization: Organization, name: str) -> None:
        """Ends a membership with its own tokens and sign-ins. Raises NotFound, and Conflict for the
        last admin."""
        with self._database.session() as session:
            row = _membership(session, organization, name)
            _keep_an_admin(session, row, "it cannot be removed")
            mine = (TokenRow.organization_id, TokenRow.user_id)
            session.execute(
                delete(TokenRow).where(
                    mine[0] == organization.id, mine[1] == row.user_id, TokenRow.role == ""
                )
            )
            session.execute(
                delete(SignInRow).where(
                    SignInRow.organization_id == organization.id, SignInRow.user_id == row.user_id
                )
            )
            session.delete(row)

    def set_operator(self, name: str, *, operator: bool) -> None:
        """Raises NotFound, and Conflict for the last operator."""
        with self._database.session() as session:
            row = session.scalar(select(UserRow).where(UserRow.name == name).with_for_update())
            if row is None:
                raise NotFound(f"user {name!r} does not exist; add one with `hotplate user add`")
            others = session.scalar(
                select(func.count())
                .select_from(UserRow)
                .where(UserRow.operator, UserRow.id != row.id)
            )
            if row.operator and not operator and not others:
                raise Conflict(f"user {name!r} is the last operator; make somebody else one before")
            row.operator = operator
            if not operator:
                # What was made with an operator's rights must not have them again some day.
                session.execute(
                    update(TokenRow).where(TokenRow.user_id == row.id).values(operator=False)
                )
                session.execute(delete(SignInRow).where(SignInRow.user_id == row.id))

    def seen(self, user_id: int, organization_id: int, at: datetime) -> None:
        """Notes when a member was active last."""
        with self._database.session() as session:
            session.execute(
                update(MembershipRow)
                .where(
                    MembershipRow.user_id == user_id,
                    MembershipRow.organization_id == organization_id,
                    or_(MembershipRow.last_seen_at.is_(None), MembershipRow.last_seen_at < at),
                )
                .values(last_seen_at=at)
            )

    def key(self, name: str) -> bytes:
        """A random key of this installation, made when first asked for and kept for good."""

        def find_or_add(session: Session) -> bytes:
            row = session.get(KeyRow, name)
            row = row or KeyRow(name=name, value=secrets.token_bytes(KEY_BYTES))
            session.add(row)
            session.flush()
            return row.value

        return self._database.settle_races(find_or_add)


def organization_record(row: OrganizationRow) -> Organization:
    return Organization(row.id, row.uid, row.name, row.created_at, row.description)


def user_record(row: UserRow, organization: OrganizationRow, email: str | None = None) -> User:
    """The person as a member of that organization."""
    email = row.email if email is None else email
    return User(row.id, row.uid, row.name, email, organization_record(organization))


def _member_record(row: MembershipRow) -> Member:
    user = user_record(row.user, row.organization, row.email)
    return Member(user, MemberRole(row.role), row.user.operator, row.last_seen_at)


def _count(column: InstrumentedAttribute[int]) -> ScalarSelect[int]:
    """How many rows of its table belong to the organization of the query around it."""
    counted = select(func.count()).where(column == OrganizationRow.id)
    return counted.correlate(OrganizationRow).scalar_subquery()


def _named(session: Session, name: str) -> OrganizationRow | None:
    return session.scalar(
        select(OrganizationRow).where(
            OrganizationRow.name == name, OrganizationRow.deleted_at.is_(None)
        )
    )


def _some(deployments: Sequence[DeploymentRow]) -> str:
    """The names of the first of them."""
    names = sorted(deployment.name for deployment in deployments)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more


def _existing(session: Session, name: str) -> OrganizationRow:
    row = _named(session, name)
    if row is None:
        raise _no_organization(name)
    return row


def _no_organization(name: str) -> NotFound:
    return NotFound(f"organization {name!r:.80} does not exist")


def _no_member(organization: Organization, name: str) -> NotFound:
    return NotFound(f"user {name!r:.80} is not a member of organization {organization.name!r}")


def _membership(session: Session, organization: Organization, name: str) -> MembershipRow:
    row = session.scalar(
        select(MembershipRow)
        .join(UserRow)
        .where(MembershipRow.organization_id == organization.id, UserRow.name == name)
    )
    if row is None:
        raise _no_member(organization, name)
    return row


def _keep_an_admin(session: Session, row: MembershipRow, so: str) -> None:
    """Raises Conflict where it is the organization's last admin. Concurrent callers wait here."""
    session.execute(
        select(OrganizationRow.id)
        .where(OrganizationRow.id == row.organization_id)
        .with_for_update()
    )
    others: Sequence[int] = session.scalars(
        select(MembershipRow.user_id).where(
            MembershipRow.organization_id == row.organization_id,
            MembershipRow.role == MemberRole.ADMIN,
            MembershipRow.user_id != row.user_id,
        )
    ).all()
    if row.role == MemberRole.ADMIN and not others:
        raise Conflict(
            f"user {row.user.name!r} is the last admin of organization "
            f"{row.organization.name!r}, so {so}; make somebody else an admin before"
        )


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
        ) or session.scalar(
            select(DeploymentRow.organization_id)
            .where(DeploymentRow.creator_id == user.id)
            .limit(1)
        )
        if other is None:
            session.delete(user)
        else:
            user.organization_id = other
    session.flush()
