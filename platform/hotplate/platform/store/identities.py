"""Organizations, users and their tokens."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from sqlalchemy import ColumnElement, Select, delete, or_, select
from sqlalchemy.orm import Session

from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.records import EndpointTokens, Organization, Token, User
from hotplate.platform.store.tables import (
    KeyRow,
    OrganizationRow,
    TokenRow,
    UserRow,
    utc_now,
)

KEY_BYTES = 32
API, ENDPOINT = "api", "endpoint"
"""Scopes: for the API, or for protected deployments. No token has both."""

ORGANIZATION = "default"
ADMIN = "admin"
CALLERS = "endpoint-token"
"""The operator's two tokens, each of which lies in a file of the data directory: the one to log in
with has their own name, and this one is for callers of protected deployments."""


def token_digest(secret: str) -> str:
    """What is stored of a token: the SHA-256 (hex). A random 256-bit secret needs no salt."""
    return sha256(secret.encode()).hexdigest()


class Identities(StorePart):
    """Users, and the tokens by which they call for their organization."""

    def ensure_user(self, organization: str, name: str, email: str) -> User:
        """The user of that name, made (with the organization) where there is none."""

        def find_or_add(session: Session) -> User:
            tenant = session.scalar(
                select(OrganizationRow).where(OrganizationRow.name == organization)
            )
            tenant = tenant or OrganizationRow(name=organization)
            session.add(tenant)
            session.flush()
            row = session.scalar(
                select(UserRow).where(UserRow.organization_id == tenant.id, UserRow.name == name)
            )
            row = row or UserRow(organization=tenant, name=name, email=email)
            session.add(row)
            session.flush()
            return user_record(row)

        return self._database.settle_races(find_or_add)

    def only_organization(self) -> Organization | None:
        """The one that there is; None where there are more, or none."""
        with self._database.session() as session:
            rows = session.scalars(select(OrganizationRow).limit(2)).all()
            return organization_record(rows[0]) if len(rows) == 1 else None

    def add_token(
        self,
        user_id: int,
        name: str,
        secret: str = "",
        scopes: Sequence[str] = (API,),
        expires_at: datetime | None = None,
    ) -> str:
        """Adds a token and returns its secret, which cannot be read back later.

        `secret` empty = a random one. A secret that this user already has is kept as it is.
        Raises Conflict where another user has it, or this user has it for something else.
        """
        secret = secret or secrets.token_hex(KEY_BYTES)
        digest = token_digest(secret)
        with self._database.session() as session:
            row = session.scalar(select(TokenRow).where(TokenRow.digest == digest))
            if row is not None and row.user_id != user_id:
                raise Conflict(f"token {name!r}: another user has this secret; choose another")
            if row is not None and set(row.scopes) != set(scopes):
                raise Conflict(
                    f"token {name!r}: {row.name!r} has this secret too, and is for something else "
                    f"({', '.join(row.scopes)}); choose another"
                )
            if row is None:
                session.add(
                    TokenRow(
                        user_id=user_id,
                        name=name,
                        digest=digest,
                        scopes=list(scopes),
                        expires_at=expires_at,
                    )
                )
        return secret

    def make_token(
        self,
        user: User,
        name: str,
        scopes: Sequence[str],
        description: str = "",
        expires_at: datetime | None = None,
    ) -> tuple[Token, str]:
        """A new token with a random secret, which cannot be read back later. Raises Conflict where
        the organization has one of that name."""
        secret = secrets.token_hex(KEY_BYTES)
        with self._database.session() as session:
            if session.scalar(_of(user.organization.id).where(TokenRow.name == name)) is not None:
                raise Conflict(
                    f"token {name!r}: a token of that name exists; delete it, or choose another"
                )
            row = TokenRow(
                user_id=user.id,
                name=name,
                description=description,
                digest=token_digest(secret),
                scopes=list(scopes),
                expires_at=expires_at,
            )
            session.add(row)
            session.flush()
            session.refresh(row)
            return _token_record(row), secret

    def token(self, organization_id: int, uid: str) -> Token:
        """Raises NotFound where the organization has no such token."""
        with self._database.session() as session:
            row = session.scalar(_of(organization_id).where(TokenRow.uid == uid))
            if row is None:
                raise NotFound(f"token {uid!r} does not exist in this organization")
            return _token_record(row)

    def find_token(self, secret: str) -> Token | None:
        """The token with that secret, unless it is unknown or expired."""
        with self._database.session() as session:
            row = session.scalar(
                select(TokenRow).where(TokenRow.digest == token_digest(secret), _still_good())
            )
            return None if row is None else _token_record(row)

    def tokens(self, organization_id: int) -> list[Token]:
        """All tokens of an organization, newest first."""
        with self._database.session() as session:
            rows = session.scalars(_of(organization_id).order_by(TokenRow.id.desc()))
            return [_token_record(row) for row in rows]

    def endpoint_tokens(self, organization_id: int) -> EndpointTokens:
        """Those that gateways let in to the organization's protected deployments."""
        with self._database.session() as session:
            rows = session.scalars(_of(organization_id).where(_still_good()).order_by(TokenRow.id))
            good = [row for row in rows if ENDPOINT in row.scopes and API not in row.scopes]
            ends = [row.expires_at for row in good if row.expires_at is not None]
            return EndpointTokens(tuple(row.digest for row in good), min(ends, default=None))

    def revoke_token(self, organization_id: int, uid: str) -> None:
        """Raises NotFound where the organization has no such token."""
        with self._database.session() as session:
            users = select(UserRow.id).where(UserRow.organization_id == organization_id)
            gone = session.execute(
                delete(TokenRow)
                .where(TokenRow.uid == uid, TokenRow.user_id.in_(users))
                .returning(TokenRow.id)
            )
            if not gone.all():
                raise NotFound(f"token {uid!r} does not exist in this organization")

    def key(self, name: str) -> bytes:
        """A random key of this installation, made when first asked for and kept for good."""

        def find_or_add(session: Session) -> bytes:
            row = session.get(KeyRow, name)
            row = row or KeyRow(name=name, value=secrets.token_bytes(KEY_BYTES))
            session.add(row)
            session.flush()
            return row.value

        return self._database.settle_races(find_or_add)


def is_operator(user: User) -> bool:
    """Whether it is the operator, whose token `hotplate up` makes."""
    return (user.organization.name, user.name) == (ORGANIZATION, ADMIN)


def organization_record(row: OrganizationRow) -> Organization:
    return Organization(row.id, row.uid, row.name, row.created_at)


def user_record(row: UserRow) -> User:
    return User(row.id, row.uid, row.name, row.email, organization_record(row.organization))


def _token_record(row: TokenRow) -> Token:
    return Token(
        id=row.id,
        uid=row.uid,
        user=user_record(row.user),
        name=row.name,
        description=row.description,
        scopes=tuple(row.scopes),
        expires_at=row.expires_at,
        created_at=row.created_at,
    )


def _of(organization_id: int) -> Select[TokenRow]:
    joined = select(TokenRow).join(UserRow, TokenRow.user_id == UserRow.id)
    return joined.where(UserRow.organization_id == organization_id)


def _still_good() -> ColumnElement[bool]:
    return or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > utc_now())
