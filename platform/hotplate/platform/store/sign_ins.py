"""Browsers that have signed in, links by which they may, and logins that wait for approval."""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, delete, select
from sqlalchemy.orm import Session, raiseload

from hotplate.platform.errors import Conflict, NotFound, Unauthorized
from hotplate.platform.spec.scopes import API
from hotplate.platform.store.audit import record_audit
from hotplate.platform.store.database import Database, StorePart
from hotplate.platform.store.identities import KEY_BYTES, user_record
from hotplate.platform.store.records import MemberRole, Organization, SignIn, Token, User
from hotplate.platform.store.tables import (
    LoginCodeRow,
    MembershipRow,
    OrganizationRow,
    SignInRow,
    TokenRow,
    UserRow,
    utc_now,
)
from hotplate.platform.store.tokens import TokenDraft, Tokens, token_digest

LINK_S = 24 * 3600.0
SIGN_IN_S = 12 * 3600.0
CODE_S = 600.0
"""How long a login waits to be approved."""

CODE_SHOWN = 8
"""So many characters of a code are shown, and name the token that it gets."""
_WHO = (
    select(SignInRow, UserRow, OrganizationRow, TokenRow, MembershipRow)
    .join(UserRow, UserRow.id == SignInRow.user_id)
    .join(OrganizationRow, OrganizationRow.id == SignInRow.organization_id)
    .outerjoin(TokenRow, TokenRow.id == SignInRow.token_id)
    .outerjoin(
        MembershipRow,
        and_(
            MembershipRow.organization_id == SignInRow.organization_id,
            MembershipRow.user_id == SignInRow.user_id,
        ),
    )
    .where(SignInRow.digest == bindparam("digest"))
    .options(raiseload("*"))  # the rows alone: what a token belongs to is not looked up
)
"""All that there is to know of a sign-in: it is asked for with each request of a browser."""
ASKED, APPROVED, DENIED = "asked", "approved", "denied"


class SignIns(StorePart):
    """Of every secret here only the digest is stored."""

    def __init__(self, database: Database, tokens: Tokens) -> None:
        super().__init__(database)
        self._tokens = tokens

    def make_link(
        self,
        organization: Organization,
        name: str,
        *,
        everywhere: bool,
        may_sign_in_operators: bool,
    ) -> tuple[str, datetime]:
        """The secret of a link by which a member signs in once, and when it ends.

        `everywhere`: to every organization of theirs, which only an operator may give. Raises
        NotFound where nobody of that name is a member; Conflict for an operator unless another one
        makes it.
        """
        with self._database.session() as session:
            found = session.execute(
                select(UserRow, MembershipRow)
                .join(MembershipRow, MembershipRow.user_id == UserRow.id)
                .where(UserRow.name == name, MembershipRow.organization_id == organization.id)
            ).first()
            if found is None:
                raise NotFound(
                    f"user {name!r:.80} is not a member of organization {organization.name!r}"
                )
            user = found[0]
            if user.operator and not may_sign_in_operators:
                raise Conflict(
                    f"user {name!r} is an operator of this installation: only an operator makes "
                    "a link for one"
                )
            secret = secrets.token_urlsafe(KEY_BYTES)
            expires_at = utc_now() + timedelta(seconds=LINK_S)
            session.add(
                SignInRow(
                    digest=token_digest(secret),
                    user_id=user.id,
                    organization_id=organization.id,
                    is_link=True,
                    everywhere=everywhere,
                    expires_at=expires_at,
                )
            )
            record_audit(session, "link.create", name, organization=organization.name)
            return secret, expires_at

    def follow_link(self, secret: str) -> str:
        """The secret of the sign-in that a link opens, which is used up. Raises Unauthorized."""
        with self._database.session() as session:
            row = session.get(SignInRow, token_digest(secret), with_for_update=True)
            if row is None or not row.is_link or row.expires_at <= utc_now():
                raise Unauthorized(
                    "the link is unknown, was used before or has expired; ask for a new one"
                )
            session.delete(row)
            user = session.get_one(UserRow, row.user_id)
            tenant = session.get_one(OrganizationRow, row.organization_id)
            record_audit(session, "login.ok", user.name, {"by": "link"}, tenant.name, user.name)
            return _signed_in(session, row.user_id, row.organization_id, row.everywhere, None)

    def by_token(self, token: Token) -> str:
        """The secret of a sign-in that may what the token may, for as long as that exists."""
        user = token.user
        with self._database.session() as session:
            told = {"by": "token", "token": token.name}
            record_audit(session, "login.ok", user.name, told, user.organization.name, user.name)
            return _signed_in(session, user.id, user.organization.id, token.operator, token.id)

    def find(self, secret: str) -> SignIn | None:
        """The sign-in with that secret, unless it is unknown, has ended, or its user is no longer a
        member."""
        with self._database.session() as session:
            found = session.execute(_WHO, {"digest": token_digest(secret)}).first()
            if found is None:
                return None
            row, user, tenant, token, membership = found
            now = utc_now()
            if row.is_link or row.expires_at <= now:
                return None
            if token is not None and token.expires_at is not None and token.expires_at <= now:
                return None
            role = token.role if token is not None else ""
            if not role and membership is None:
                return None
            return SignIn(
                user=user_record(user, tenant, None if membership is None else membership.email),
                role=MemberRole(role or (membership.role if membership is not None else "")),
                expires_at=row.expires_at,
                everywhere=row.everywhere,
                operator=row.everywhere and user.operator,
                scopes=(API,) if token is None else tuple(token.scopes),
                is_organizations=token is not None and bool(token.role),
            )

    def end(self, secret: str) -> None:
        """Signs out."""
        with self._database.session() as session:
            session.execute(delete(SignInRow).where(SignInRow.digest == token_digest(secret)))

    # Logins of `bentoml cloud login` -------------------------------------------------------

    def ask(self) -> str:
        """The code of a login that somebody is to approve."""
        code = secrets.token_urlsafe(KEY_BYTES)
        with self._database.session() as session:
            session.execute(delete(LoginCodeRow).where(LoginCodeRow.expires_at <= utc_now()))
            session.execute(delete(SignInRow).where(SignInRow.expires_at <= utc_now()))
            expires_at = utc_now() + timedelta(seconds=CODE_S)
            session.add(LoginCodeRow(digest=token_digest(code), expires_at=expires_at))
        return code

    def is_asked(self, code: str) -> bool:
        """Whether a login waits with that code."""
        with self._database.session() as session:
            row = session.get(LoginCodeRow, token_digest(code))
            return row is not None and row.state == ASKED and row.expires_at > utc_now()

    def approve(self, code: str, user: User, draft: TokenDraft) -> Token:
        """Approves a login with a new token. Raises Unauthorized where the code is unknown, was
        answered before or has expired."""
        salt = secrets.token_hex(KEY_BYTES)
        with self._database.together():
            with self._database.session() as session:
                row = _asked(session, code)
                row.state, row.salt = APPROVED, salt
                record_audit(session, "login.approved", draft.name)
            token, _ = self._tokens.make_token(user, draft, _secret(code, salt))
            with self._database.session() as session:
                _login(session, code).token_id = token.id
        return token

    def deny(self, code: str) -> None:
        """Raises Unauthorized as `approve` does."""
        with self._database.session() as session:
            _asked(session, code).state = DENIED
            record_audit(session, "login.denied", code[:CODE_SHOWN])

    def collect(self, code: str) -> tuple[str, str]:
        """A login's state and the secret of its token, which is given out once. Raises Unauthorized
        where the code is unknown, was used before or has expired."""
        with self._database.session() as session:
            row = _login(session, code)
            if row.state != APPROVED:
                return row.state, ""
            session.delete(row)
            return APPROVED, _secret(code, row.salt)


def _login(session: Session, code: str) -> LoginCodeRow:
    row = session.get(LoginCodeRow, token_digest(code), with_for_update=True)
    if row is None or row.expires_at <= utc_now():
        raise Unauthorized(
            "the login's code is unknown, was used before or has expired; run "
            "'bentoml cloud login' again"
        )
    return row


def _asked(session: Session, code: str) -> LoginCodeRow:
    row = _login(session, code)
    if row.state != ASKED:
        raise Unauthorized("the login's code was answered before; run 'bentoml cloud login' again")
    return row


def _secret(code: str, salt: str) -> str:
    return hmac.digest(code.encode(), salt.encode(), "sha256").hex()


def _signed_in(
    session: Session, user_id: int, organization_id: int, everywhere: bool, token_id: int | None
) -> str:
    secret = secrets.token_urlsafe(KEY_BYTES)
    session.add(
        SignInRow(
            digest=token_digest(secret),
            user_id=user_id,
            organization_id=organization_id,
            token_id=token_id,
            is_link=False,
            everywhere=everywhere,
            expires_at=utc_now() + timedelta(seconds=SIGN_IN_S),
        )
    )
    return secret
