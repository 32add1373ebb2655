"""People, the organizations of which they are members, and what each may do there.

A person has one name in the whole installation and may be a member of several organizations, each
of which gives them a role. Whoever may add a person to one organization must not reach another one
by that: what an organization's admin makes for a person (a link, a token) is good in this
organization only, and without an operator's rights.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import (
    MemberRole,
    Membership,
    Organization,
    User,
)
from hotplate.platform.store.tables import (
    KeyRow,
    MembershipRow,
    OrganizationRow,
    SignInRow,
    TokenRow,
    UserRow,
)

KEY_BYTES = 32

ADMIN = "admin"
"""The first operator: `hotplate up` makes them, in the organization `default`."""


class Identities(StorePart):
    """Users and their memberships."""

    def ensure_user(
        self, organization: str, name: str, email: str, role: MemberRole = MemberRole.ADMIN
    ) -> User:
        """The member of that name, made (with the organization) where there is none."""

        def find_or_add(session: Session) -> User:
            tenant = named_organization(session, organization) or OrganizationRow(name=organization)
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

    def members(self, organization_id: int) -> list[Membership]:
        """All of an organization, by name."""
        with self._database.session() as session:
            rows = session.scalars(
                select(MembershipRow)
                .join(UserRow)
                .where(MembershipRow.organization_id == organization_id)
                .order_by(UserRow.name)
            )
            return [_member_record(row) for row in rows]

    def member(self, organization: Organization, name: str) -> Membership:
        """Raises NotFound where nobody of that name is a member."""
        with self._database.session() as session:
            return _member_record(_membership(session, organization, name))

    def put_member(
        self, organization: Organization, name: str, email: str | None, role: MemberRole | None
    ) -> Membership:
        """Adds a member or changes one; None = as it is. Raises Conflict for the last admin, and
        NotFound where a new one has no role."""

        def put(session: Session) -> Membership:
            user = session.scalar(select(UserRow).where(UserRow.name == name))
            row = None if user is None else session.get(MembershipRow, (organization.id, user.id))
            if row is None and role is None:
                raise _no_member(organization, name)
            if user is None:
                user = UserRow(organization_id=organization.id, name=name, email=email or "")
                session.add(user)
                session.flush()
            adds = row is None
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
            record_audit(
                session,
                "member.add" if adds else "member.update",
                name,
                {"role": row.role, "email": row.email},
                organization.name,
            )
            return _member_record(row)

        return self._database.settle_races(put)

    def remove_member(self, organization: Organization, name: str) -> None:
        """Ends a membership with its own tokens and sign-ins. Raises NotFound, and Conflict for the
        last admin."""
        with self._database.session() as session:
            row = _membership(session, organization, name)
            _keep_an_admin(session, row, "it cannot be removed")
            elsewhere = select(MembershipRow).where(
                MembershipRow.user_id == row.user_id,
                MembershipRow.organization_id != organization.id,
            )
            if session.scalar(elsewhere.limit(1)) is None:
                keep_an_operator(session, [row.user_id], "it cannot be removed")
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
            record_audit(session, "member.remove", name, organization=organization.name)

    def set_operator(self, name: str, *, operator: bool) -> None:
        """Raises NotFound, and Conflict for the last operator."""
        with self._database.session() as session:
            row = session.scalar(select(UserRow).where(UserRow.name == name))
            if row is None:
                raise NotFound(
                    f"user {name!r:.80} does not exist; add one with `hotplate user add`"
                )
            if not operator:
                keep_an_operator(session, [row.id], "its rights stay")
            row.operator = operator
            record_audit(session, f"operator.{'on' if operator else 'off'}", name, organization="")
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


def _member_record(row: MembershipRow) -> Membership:
    user = user_record(row.user, row.organization, row.email)
    return Membership(user, MemberRole(row.role), row.user.operator, row.last_seen_at)


def named_organization(session: Session, name: str) -> OrganizationRow | None:
    """The organization of that name, unless it was deleted."""
    return session.scalar(
        select(OrganizationRow).where(
            OrganizationRow.name == name, OrganizationRow.deleted_at.is_(None)
        )
    )


def keep_an_operator(session: Session, without: Sequence[int], so: str) -> None:
    """Raises Conflict where nobody else than these users could act as an operator: who is in no
    organization has no token. Concurrent callers wait here, for all operators."""
    operators = session.scalars(
        select(UserRow)
        .where(UserRow.operator)
        .order_by(UserRow.id)
        .with_for_update(of=UserRow)
        .execution_options(populate_existing=True)
    ).all()
    going = [user for user in operators if user.id in without]
    members = select(MembershipRow.user_id).where(
        MembershipRow.user_id.in_([user.id for user in operators if user.id not in without])
    )
    if going and session.scalar(members.limit(1)) is None:
        raise Conflict(
            f"user {going[0].name!r} is the last operator, so {so}; make somebody else one before"
        )


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
    session.refresh(row)  # while this waited, it may have been made the only one
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
