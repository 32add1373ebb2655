"""Tokens that users make: for the API, or for callers of protected deployments.

One that callers send to a deployment is good for nothing else, so who gets hold of a call cannot
deploy; one of the API is refused by deployments, so that nobody sends it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.requests import body, caller, organization, query_number
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Conflict, Invalid
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.store.identities import (
    ADMIN,
    API,
    CALLERS,
    ENDPOINT,
    Identities,
    is_operator,
)

GIVEN = (API, ENDPOINT)
NOT_YET = ("read_organization", "write_organization", "read_cluster", "write_cluster")
"""BentoCloud's others, which nothing would heed."""
NAME_CHARACTERS = 200
PAGE = 100


class TokenRoutes:
    """`/api/v1/api_tokens`: tokens of the caller's organization; secrets are shown once."""

    def __init__(self, identities: Identities, controller: ControllerApi) -> None:
        self._identities = identities
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
        """`GET`: all tokens of the organization, newest first, without their secrets."""
        start, count = query_number(request, "start", 0), query_number(request, "count", PAGE)
        search = request.query.get("search", "")
        tokens = await self._identities.run(self._identities.tokens, organization(request).id)
        found = [views.token(token) for token in tokens if search in token.name]
        return web.json_response(views.listed(found[start : start + count], start, len(found)))

    async def create(self, request: web.Request) -> web.Response:
        """The answer is the only one with the token itself."""
        fields, user = await body(request), caller(request)
        name, scopes = fields.text("name"), _scopes(fields)
        if len(name) > NAME_CHARACTERS:
            raise Invalid(f"name: it has {len(name)} characters, {NAME_CHARACTERS} are the most")
        token, secret = await self._identities.run(
            self._identities.make_token,
            user,
            name,
            scopes,
            fields.text("description", ""),
            _expiry(fields),
        )
        self._controller.tokens_changed(user.organization.id)
        return web.json_response(views.token(token) | {"token": secret})

    async def get(self, request: web.Request) -> web.Response:
        """`GET /{uid}`: one token, without its secret. Raises NotFound."""
        uid = request.match_info["uid"]
        token = await self._identities.run(self._identities.token, organization(request).id, uid)
        return web.json_response(views.token(token))

    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE /{uid}`: the token is good for nothing from now on. Raises NotFound, Conflict."""
        tenant, uid = organization(request), request.match_info["uid"]
        token = await self._identities.run(self._identities.token, tenant.id, uid)
        if is_operator(token.user) and token.name in (ADMIN, CALLERS):
            raise Conflict(
                f"token {token.name!r}: it is kept in the data directory of 'hotplate up' and "
                "would be back with its next start; write another into its file before that"
            )
        await self._identities.run(self._identities.revoke_token, tenant.id, uid)
        self._controller.tokens_changed(tenant.id)
        return web.json_response(views.token(token))


def _scopes(fields: Fields) -> Sequence[str]:
    scopes = fields.texts("scopes") or [API]
    for index, scope in enumerate(scopes):
        if scope in NOT_YET:
            raise Invalid(
                f"scopes[{index}]: {scope!r} is not offered yet; a token is for everything in its "
                f"organization ({API!r}) or for calls of its protected deployments ({ENDPOINT!r})"
            )
        if scope not in GIVEN:
            raise Invalid(f"scopes[{index}]: there is no {scope!r:.80}{suggestion(scope, GIVEN)}")
    if len(set(scopes)) > 1:
        raise Invalid(
            f"scopes: a token is for {API!r} or for {ENDPOINT!r}, since whoever gets hold of a "
            "call must not be able to deploy; make two"
        )
    return scopes[:1]


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
