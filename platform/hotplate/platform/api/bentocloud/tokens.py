"""Tokens that users make: for the API, for callers of protected deployments, for metrics.

Admins see all tokens of their organization and may end them; everybody else sees and ends their
own. A token never has more rights than its owner has at the moment that it is used; one of the
organization itself has a role of its own, which is not above its maker's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.access import lacking
from hotplate.platform.api.web.requests import (
    access,
    body,
    caller,
    organization,
    query_number,
    query_start,
)
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Conflict, Forbidden, Invalid, NotFound
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.spec.scopes import (
    OF_API,
    checked_scopes,
    is_for_endpoints,
)
from hotplate.platform.store.identities import ADMIN
from hotplate.platform.store.records import ORGANIZATION, MemberRole, Token
from hotplate.platform.store.tokens import KEPT, TokenDraft, Tokens

NAME_CHARACTERS = 200
PAGE = 100


class TokenRoutes:
    """`/api/v1/api_tokens`: tokens of the caller's organization; secrets are shown once."""

    def __init__(self, tokens: Tokens, controller: ControllerApi) -> None:
        self._tokens = tokens
        self._controller = controller

    def routes(self) -> list[web.RouteDef]:
        root = "/api/v1/api_tokens"
        return [
            web.get(root, self.list_all),
            web.post(root, self.create),
            web.get(root + "/{uid}", self.get),
            web.delete(root + "/{uid}", self.delete),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET`: the tokens that the caller may see, newest first, without their secrets."""
        start, count = query_start(request), query_number(request, "count", PAGE)
        search = request.query.get("search", "")
        tokens = await self._tokens.run(self._tokens.tokens, organization(request).id)
        found = [token for token in tokens if search in token.name and _is_seen(request, token)]
        shown = [views.token(token) for token in found[start : start + count]]
        return web.json_response(views.listed(shown, start, len(found)))

    async def create(self, request: web.Request) -> web.Response:
        """The answer is the only one with the token itself. `service` (true) makes it the
        organization's own, with the `role` given."""
        fields = await body(request)
        token, secret = await self._tokens.run(
            self._tokens.make_token, caller(request), _draft(request, fields)
        )
        self._controller.tokens_changed()
        return web.json_response(views.token(token) | {"token": secret})

    async def get(self, request: web.Request) -> web.Response:
        """`GET /{uid}`: one token, without its secret. Raises NotFound."""
        return web.json_response(views.token(await self._named(request)))

    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE /{uid}`: the token is good for nothing from now on. Raises NotFound, Conflict."""
        token = await self._named(request)
        of_operator = (token.user.organization.name, token.user.name) == (ORGANIZATION, ADMIN)
        if of_operator and token.operator and token.name in (ADMIN, *KEPT):
            raise Conflict(
                f"token {token.name!r}: it is kept in the data directory of 'hotplate up' and "
                "would be back with its next start; write another into its file before that"
            )
        tenant = organization(request)
        await self._tokens.run(self._tokens.revoke_token, tenant.id, token.uid)
        self._controller.tokens_changed()
        return web.json_response(views.token(token))

    async def _named(self, request: web.Request) -> Token:
        uid = request.match_info["uid"]
        token = await self._tokens.run(self._tokens.token, organization(request).id, uid)
        if not _is_seen(request, token):
            raise NotFound(f"token {uid!r:.80} does not exist in this organization")
        return token


def _is_seen(request: web.Request, token: Token) -> bool:
    found = access(request)
    if found.operator or found.role is MemberRole.ADMIN:
        return True
    if found.is_organizations:  # its maker's are not its own
        return token.id == found.token_id
    return token.user.id == found.user.id and not token.is_organizations


def _draft(request: web.Request, fields: Fields) -> TokenDraft:
    """Raises Invalid, and Forbidden for rights that the caller does not have."""
    found, name = access(request), fields.text("name")
    if len(name) > NAME_CHARACTERS:
        raise Invalid(f"name: it has {len(name)} characters, {NAME_CHARACTERS} are the most")
    scopes = checked_scopes(fields.texts("scopes"))
    role = found.role if not found.operator else MemberRole.ADMIN
    if role is MemberRole.ENDPOINT_USER and not all(map(is_for_endpoints, scopes)):
        raise Forbidden(
            f"scopes: a token of {', '.join(scopes)!r} needs the role "
            f"{MemberRole.DEVELOPER.value!r} in organization {found.user.organization.name!r}; "
            f"as {role.value!r} you make tokens of the scope 'endpoint'"
        )
    if found.is_organizations and not fields.flag("service"):
        raise Forbidden(
            f"token {found.token!r} is the organization's own, so it makes no token of a person; "
            "an admin's makes others of the organization (service)"
        )
    for scope in scopes:
        wide = OF_API if scope == "api" else (scope,) if scope in OF_API else ()
        if missing := lacking(found, wide):
            raise Forbidden(
                f"scopes: this token lacks {', '.join(missing)} itself, so it cannot make one of "
                f"the scope {scope!r}; use one of the scope 'api'"
            )
    return TokenDraft(
        name,
        scopes,
        fields.text("description", ""),
        _expiry(fields),
        service_role=_service_role(fields, role),
        operator=found.operator and not fields.flag("service"),
    )


def _service_role(fields: Fields, own: MemberRole) -> MemberRole | None:
    """Of a token that is the organization's own; None = it is the caller's."""
    if not fields.flag("service"):
        if fields.has("role"):
            raise Invalid("role: only a token of the organization (service) has a role of its own")
        return None
    if own is not MemberRole.ADMIN:
        raise Forbidden(
            "service: a token of the organization needs the role 'admin'; ask one of its admins"
        )
    return member_role(fields)


def member_role(fields: Fields) -> MemberRole:
    """The `role` given. Raises Invalid, with the nearest one."""
    roles = [role.value for role in MemberRole]
    if not fields.has("role"):
        raise Invalid(f"{fields.at('role')}: there is none; it is one of {', '.join(roles)}")
    text = fields.text("role")
    if text not in roles:
        raise Invalid(f"{fields.at('role')}: there is no {text!r:.80}{suggestion(text, roles)}")
    return MemberRole(text)


def _expiry(fields: Fields) -> datetime | None:
    """The client counts from its own clock and does not say in which zone: it is taken for ours."""
    text = fields.text("expired_at", "")
    if not text:
        return None
    try:
        expiry = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"expired_at: {text!r:.80} is not a time in ISO 8601") from None
    now = datetime.now(UTC)
    if expiry <= now:
        here = now.astimezone().isoformat(" ", "seconds")
        raise Invalid(f"expired_at: {text!r:.80} is past, it is {here} here; name a later time")
    return expiry
