"""API tokens: whose they are, what they are for, and which gateways accept."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TypeAlias

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from hotplate.machine.access.metrics_reader import ALL, MetricsReader
from hotplate.platform.errors import Conflict, NotFound
from hotplate.platform.spec.scopes import API, ENDPOINT, endpoint_of
from hotplate.platform.spec.scopes import METRICS as READS_METRICS
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import StorePart
from hotplate.platform.store.identities import KEY_BYTES, user_record
from hotplate.platform.store.records import MemberRole, Token, User
from hotplate.platform.store.tables import (
    MembershipRow,
    OrganizationRow,
    TokenRow,
    UserRow,
    utc_now,
)
from hotplate.serving.gateway.protocol.routes import AcceptedToken

CALLERS = "endpoint-token"
METRICS = "metrics-token"
KEPT = (CALLERS, METRICS)
"""Names of the operator's tokens that lie in files of the data directory, beside their own."""


METRICS_ROLE = MemberRole.DEVELOPER
"""Of whoever reads metrics, as of whoever sees deployments."""


@dataclass(frozen=True)
class TokenDraft:
    """What a new token shall be."""

    name: str
    scopes: Sequence[str]
    description: str = ""
    expires_at: datetime | None = None
    service_role: MemberRole | None = None
    """Of one that belongs to the organization; None = it is its maker's own."""
    operator: bool = False
    """Whether its maker has an operator's rights, which it then has too."""


def token_digest(secret: str) -> str:
    """What is stored of a token: the SHA-256 (hex). A random 256-bit secret needs no salt."""
    return sha256(secret.encode()).hexdigest()


class Tokens(StorePart):
    """The tokens of all organizations."""

    def adopt(self) -> None:
        """Gives their owners' organization to tokens that an older control plane has made."""
        home = select(UserRow.organization_id).where(UserRow.id == TokenRow.user_id)
        with self._database.session() as session:
            session.execute(
                update(TokenRow)
                .where(TokenRow.organization_id.is_(None))
                .values(organization_id=home.scalar_subquery())
            )

    def add_token(
        self,
        user: User,
        name: str,
        secret: str = "",
        scopes: Sequence[str] = (API,),
        expires_at: datetime | None = None,
        *,
        operator: bool = False,
    ) -> str:
        """Adds a token and returns its secret, which cannot be read back later.

        `secret` empty = a random one. A secret that this user already has is kept as it is.
        Raises Conflict where another user has it, or this user has it for something else.
        """
        secret = secret or secrets.token_hex(KEY_BYTES)
        digest = token_digest(secret)
        with self._database.session() as session:
            row = session.scalar(select(TokenRow).where(TokenRow.digest == digest))
            if row is not None and row.user_id != user.id:
                raise Conflict(f"token {name!r}: another user has this secret; choose another")
            if row is not None and set(row.scopes) != set(scopes):
                raise Conflict(
                    f"token {name!r}: {row.name!r} has this secret too, and is for something else "
                    f"({', '.join(row.scopes)}); choose another"
                )
            if row is None:
                draft = TokenDraft(name, scopes, expires_at=expires_at, operator=operator)
                session.add(_row(user, draft, digest))
            elif operator:  # which it may have lost since, while its owner was none
                row.operator = True
        return secret

    def make_token(self, user: User, draft: TokenDraft, secret: str = "") -> tuple[Token, str]:
        """A new token of a member, or of their organization, and its secret (a random one where
        none is given), which cannot be read back later. Raises Conflict where the organization has
        one of that name."""
        secret = secret or secrets.token_hex(KEY_BYTES)

        def make(session: Session) -> Token:
            member = session.get(MembershipRow, (user.organization.id, user.id))
            if draft.service_role is None and member is None:
                raise Conflict(
                    f"user {user.name!r} is not a member of organization "
                    f"{user.organization.name!r}, where a token of theirs would open nothing; make "
                    "one of the organization ('service', with a 'role'), or add them to it"
                )
            of = _of(user.organization.id).where(TokenRow.name == draft.name)
            if session.execute(of).first() is not None:
                raise Conflict(
                    f"token {draft.name!r}: a token of that name exists; delete it, "
                    "or choose another"
                )
            row = _row(user, draft, token_digest(secret))
            session.add(row)
            session.flush()
            record_audit(session, "token.create", draft.name, {"scopes": list(draft.scopes)})
            return _one(session, _of(user.organization.id).where(TokenRow.id == row.id))

        return self._database.settle_races(make), secret

    def token(self, organization_id: int, uid: str) -> Token:
        """Raises NotFound where the organization has no such token."""
        with self._database.session() as session:
            return _one(session, _of(organization_id).where(TokenRow.uid == uid), uid)

    def find_token(self, secret: str) -> Token | None:
        """The token with that secret, unless it is unknown or expired, or its owner is no longer a
        member."""
        with self._database.session() as session:
            digest = token_digest(secret)
            query = _joined().where(TokenRow.digest == digest, _still_good(), _IS_SOMEBODYS)
            found = session.execute(query).first()
            return None if found is None else _record(found[0], found[1])

    def tokens(self, organization_id: int) -> list[Token]:
        """All tokens of an organization, newest first."""
        with self._database.session() as session:
            query = _of(organization_id).order_by(TokenRow.id.desc())
            return [_record(row, membership) for row, membership in session.execute(query)]

    def accepted(self) -> dict[str, tuple[AcceptedToken, ...]]:
        """By organization, those that gateways let in to its protected deployments."""
        query = _joined().where(_still_good(), _IS_SOMEBODYS).order_by(TokenRow.id)
        accepted: dict[str, list[AcceptedToken]] = {}
        with self._database.session() as session:
            for row, _ in session.execute(query):
                accepted.setdefault(row.organization.name, []).extend(_accepted(row))
        return {name: tuple(tokens) for name, tokens in accepted.items() if tokens}

    def ends(self) -> dict[str, tuple[float, ...]]:
        """When those of each organization expire, as far as they do: Unix seconds, the first one
        first."""
        query = _joined().where(TokenRow.expires_at > utc_now(), _IS_SOMEBODYS)
        ends: dict[str, list[float]] = {}
        with self._database.session() as session:
            for row, _ in session.execute(query.order_by(TokenRow.expires_at)):
                if row.expires_at is not None:
                    ends.setdefault(row.organization.name, []).append(row.expires_at.timestamp())
        return {name: tuple(found) for name, found in ends.items()}

    def metrics_readers(self) -> tuple[MetricsReader, ...]:
        """Those that show metrics."""
        query = _joined().where(_still_good(), _IS_SOMEBODYS).order_by(TokenRow.id)
        with self._database.session() as session:
            found = session.execute(query)
            return tuple(each for row, of in found for each in _readers(_record(row, of), row))

    def revoke_token(self, organization_id: int, uid: str) -> None:
        """Raises NotFound where the organization has no such token."""
        with self._database.session() as session:
            gone = session.execute(
                delete(TokenRow)
                .where(TokenRow.uid == uid, TokenRow.organization_id == organization_id)
                .returning(TokenRow.name)
            )
            names = gone.scalars().all()
            if not names:
                raise NotFound(f"token {uid!r:.80} does not exist in this organization")
            record_audit(session, "token.revoke", names[0])

    def used(
        self, at: datetime, token_ids: Iterable[int] = (), digests: Iterable[str] = ()
    ) -> None:
        """Notes when tokens were used last."""
        which = or_(TokenRow.id.in_(list(token_ids)), TokenRow.digest.in_(list(digests)))
        earlier = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at < at)
        with self._database.session() as session:
            session.execute(update(TokenRow).where(which, earlier).values(last_used_at=at))


def _row(user: User, draft: TokenDraft, digest: str) -> TokenRow:
    return TokenRow(
        organization_id=user.organization.id,
        user_id=user.id,
        role=draft.service_role or "",
        operator=draft.operator,
        name=draft.name,
        description=draft.description,
        digest=digest,
        scopes=list(draft.scopes),
        expires_at=draft.expires_at,
    )


def _accepted(row: TokenRow) -> Iterator[AcceptedToken]:
    expires_at = None if row.expires_at is None else row.expires_at.timestamp()
    if ENDPOINT in row.scopes:
        yield AcceptedToken(row.digest, expires_at)
        return
    for scope in row.scopes:
        if deployment := endpoint_of(scope):
            yield AcceptedToken(row.digest, expires_at, deployment)


def _readers(token: Token, row: TokenRow) -> Iterator[MetricsReader]:
    if READS_METRICS in token.scopes and (token.operator or token.role.is_at_least(METRICS_ROLE)):
        expires_at = None if token.expires_at is None else token.expires_at.timestamp()
        lines_of = ALL if token.operator else token.user.organization.name
        yield MetricsReader(row.digest, expires_at, lines_of)


Found: TypeAlias = "Select[TokenRow, MembershipRow | None]"


def _joined() -> Found:
    """Tokens, each with its owner's membership in its organization, if there is one."""
    same = and_(
        MembershipRow.user_id == TokenRow.user_id,
        MembershipRow.organization_id == TokenRow.organization_id,
    )
    return (
        select(TokenRow, MembershipRow)
        .join(UserRow, TokenRow.user_id == UserRow.id)
        .join(OrganizationRow, TokenRow.organization_id == OrganizationRow.id)
        .outerjoin(MembershipRow, same)
    )


def _of(organization_id: int) -> Found:
    return _joined().where(TokenRow.organization_id == organization_id)


def _one(session: Session, query: Found, uid: str = "") -> Token:
    found = session.execute(query).first()
    if found is None:
        raise NotFound(f"token {uid!r:.80} does not exist in this organization")
    return _record(found[0], found[1])


def _record(row: TokenRow, membership: MembershipRow | None) -> Token:
    role = row.role or (membership.role if membership is not None else MemberRole.ENDPOINT_USER)
    email = None if membership is None else membership.email
    return Token(
        id=row.id,
        uid=row.uid,
        user=user_record(row.user, row.organization, email),
        name=row.name,
        description=row.description,
        scopes=tuple(row.scopes),
        expires_at=row.expires_at,
        created_at=row.created_at,
        role=MemberRole(role),
        is_organizations=bool(row.role),
        operator=row.operator and row.user.operator,
        last_used_at=row.last_used_at,
    )


_IS_SOMEBODYS = or_(TokenRow.role != "", MembershipRow.role.is_not(None))
"""The organization's own, or of somebody who is still a member."""


def _still_good() -> ColumnElement[bool]:
    return or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > utc_now())
