"""BentoCloud's secrets of an organization: made, changed, deleted, shown without values."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from hotplate.platform.api.bentocloud import views
from hotplate.platform.api.web.etags import ConditionalChanges, tagged
from hotplate.platform.api.web.requests import (
    body,
    caller,
    check_cluster,
    organization,
    query_number,
    query_start,
)
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.secret_content import secret_content, secret_name
from hotplate.platform.store.org_secrets import Secrets
from hotplate.platform.store.records import Secret

ROOT = "/api/v1/org_secrets"
COUNT = 10
DESCRIPTION_CHARACTERS = 2000


class SecretRoutes:
    """`/api/v1/org_secrets`: no answer has a value."""

    def __init__(self, secrets: Secrets, settings: ApiSettings) -> None:
        self._secrets = secrets
        self._settings = settings
        self._changes = ConditionalChanges()

    def routes(self) -> list[web.RouteDef]:
        one = ROOT + "/{name}"
        return [
            web.get(ROOT, self.list_all),
            web.post(ROOT, self.create),
            web.get(one, self.get),
            web.patch(one, self.change),
            web.delete(one, self.delete),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET`: by name; `search` is part of one. With `all=true`, as the client asks, all of
        them: it would ask for ten and for no further page."""
        found = await self._secrets.run(self._secrets.of_organization, organization(request).id)
        search = request.query.get("search", "")
        found = [secret for secret in found if search in secret.name]
        start, count = query_start(request), query_number(request, "count", COUNT)
        everything = request.query.get("all", "").lower() == "true"
        shown = found[start:] if everything else found[start : start + count]
        items = [self._view(secret) for secret in shown]
        return web.json_response(views.listed(items, start, len(found)))

    async def create(self, request: web.Request) -> web.Response:
        """`POST`: raises Conflict where the name is taken."""
        check_cluster(request, self._settings.cluster)
        fields = (await body(request)).hiding()
        secret = await self._secrets.run(
            self._secrets.create,
            caller(request),
            secret_name("name", fields.exact_text("name")),
            _description(fields) or "",
            secret_content(fields.fields("content")),
        )
        return self._answer(secret)

    async def get(self, request: web.Request) -> web.Response:
        """`GET /{name}`: raises NotFound."""
        secret = await self._find(request)
        return tagged(self._view(secret), _changeable(secret))

    async def change(self, request: web.Request) -> web.Response:
        """`PATCH /{name}`: replicas that start from now on have the new values; a key without a
        value keeps its own. Raises NotFound."""
        tenant, name = organization(request).id, self._named(request)
        fields = (await body(request)).hiding()
        content = secret_content(fields.fields("content")) if fields.has("content") else None
        async with self._changes.one(request, partial(self._state, request)):
            return self._answer(
                await self._secrets.run(
                    self._secrets.change, tenant, name, content, _description(fields)
                )
            )

    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE /{name}`: raises NotFound, and Conflict where a deployment names it."""
        tenant, name = organization(request).id, self._named(request)
        async with self._changes.one(request, partial(self._state, request)):
            return self._answer(await self._secrets.run(self._secrets.delete, tenant, name))

    async def _find(self, request: web.Request) -> Secret:
        """Raises NotFound."""
        tenant, name = organization(request).id, self._named(request)
        return await self._secrets.run(self._secrets.find, tenant, name)

    async def _state(self, request: web.Request) -> views.Json:
        return _changeable(await self._find(request))

    def _named(self, request: web.Request) -> str:
        check_cluster(request, self._settings.cluster)
        return secret_name("name", request.match_info["name"])

    def _answer(self, secret: Secret) -> web.Response:
        return web.json_response(self._view(secret))

    def _view(self, secret: Secret) -> views.Json:
        return views.secret(secret, self._settings.cluster)


def _changeable(secret: Secret) -> views.Json:
    """What stands for a secret and its values, which nobody is told."""
    return {"uid": secret.uid, "changed_at": secret.updated_at}


def _description(fields: Fields) -> str | None:
    """None where it is not given."""
    if not fields.has("description"):
        return None
    return fields.text("description", "")[:DESCRIPTION_CHARACTERS]
