"""Our own routes about organizations and their members."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hotplate.platform.api.bentocloud.tokens import member_role
from hotplate.platform.api.hotplate.quotas import quota_json
from hotplate.platform.api.web.access import lacking
from hotplate.platform.api.web.etags import ConditionalChanges, tagged
from hotplate.platform.api.web.requests import access, body, organization
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.controller.interface import ControllerApi
from hotplate.platform.errors import Forbidden, Invalid, NotFound
from hotplate.platform.spec.fields import Fields
from hotplate.platform.spec.names import check_organization_name, check_person_name
from hotplate.platform.store.organizations import OrganizationSummary
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Membership, Organization

EMAIL_CHARACTERS = 254
"""RFC 5321's longest address."""
DESCRIPTION_CHARACTERS = 1000


class OrganizationRoutes:
    """An operator sees and changes all organizations; everybody else sees those they are in, and an
    admin changes who is in theirs."""

    def __init__(self, store: Store, controller: ControllerApi, settings: ApiSettings) -> None:
        self._store = store
        self._identities = store.identities
        self._organizations = store.organizations
        self._changes = ConditionalChanges()
        self._controller = controller
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        root = "/api/v1/hotplate/organizations"
        one = root + "/{organization}"
        member = one + "/members/{name}"
        user = "/api/v1/hotplate/users/{name}"
        return [
            web.get(root, self.list_all),
            web.post(root, self.create),
            web.get(one, self.get),
            web.patch(one, self.describe),
            web.delete(one, self.delete),
            web.get(one + "/members", self.members),
            web.get(member, self.member),
            web.put(member, self.put_member),
            web.delete(member, self.remove_member),
            web.post(user + "/link", self.make_link),
            web.put(user + "/operator", self.set_operator),
        ]

    async def list_all(self, request: web.Request) -> web.Response:
        """`GET`: all for an operator; for others those of the caller's that the token is for."""
        found = access(request)
        if found.operator:
            summaries = await self._store.run(self._organizations.organizations)
        elif found.everywhere:
            summaries = await self._store.run(self._organizations.organizations, found.user.id)
        else:
            summaries = [await self._store.run(self._organizations.summary, organization(request))]
        items = [await self._shown(summary) for summary in summaries]
        return web.json_response({"items": items, "total": len(items)})

    async def create(self, request: web.Request) -> web.Response:
        """`{"name", "description"}`. Raises Conflict, and Alone where nothing keeps replicas apart
        and another organization is served."""
        fields = await body(request)
        name = check_organization_name("name", fields.text("name"))
        await self._controller.admit(name)
        made = await self._store.run(self._organizations.create, name, _description(fields))
        return web.json_response(await self._shown(OrganizationSummary(made, 0, 0)))

    async def get(self, request: web.Request) -> web.Response:
        """`GET /{organization}`. Raises NotFound."""
        return await self._answer(await self._named(request))

    async def describe(self, request: web.Request) -> web.Response:
        """`{"description"}`: an organization's name never changes."""
        tenant, fields = await self._named(request), await body(request)
        if fields.has("name") and fields.text("name") != tenant.name:
            raise Invalid("name: an organization's name never changes; create another one")
        async with self._changes.one(request, lambda: self._state(request)):
            changed = await self._store.run(
                self._organizations.describe, tenant.name, _description(fields)
            )
        return await self._answer(changed)

    async def delete(self, request: web.Request) -> web.Response:
        """`?force=true` ends its deployments too. It is gone at once; what runs is drained."""
        tenant = await self._named(request)
        summary = await self._store.run(self._organizations.summary, tenant)
        shown = await self._shown(summary)
        force = request.query.get("force", "") in ("true", "1")
        async with self._changes.one(request, lambda: self._state(request)):
            ending = await self._store.run(self._organizations.delete, tenant.name, force=force)
        await self._store.run(self._organizations.finish_deletions)
        for deployment_id in ending:
            self._controller.poke(deployment_id)
        self._controller.tokens_changed()
        self._controller.quotas_changed()
        return web.json_response(shown)

    async def members(self, request: web.Request) -> web.Response:
        """`GET /{organization}/members`, by name."""
        tenant = await self._named(request)
        found = await self._store.run(self._identities.members, tenant.id)
        items = [_member(member) for member in found]
        return web.json_response({"items": items, "total": len(items)})

    async def member(self, request: web.Request) -> web.Response:
        """`GET /{organization}/members/{name}`. Raises NotFound."""
        tenant, name = await self._named(request), request.match_info["name"]
        found = await self._store.run(self._identities.member, tenant, name)
        return tagged(_member(found), _changeable_of(found))

    async def put_member(self, request: web.Request) -> web.Response:
        """`{"email", "role"}`: adds a member (who needs a role), or changes one."""
        tenant = await self._named(request)
        name = check_person_name("name", request.match_info["name"])
        fields = await body(request)
        email = _email(fields) if fields.has("email") else None
        role = member_role(fields) if fields.has("role") else None
        if role is None:
            known = await self._store.run(self._identities.members, tenant.id)
            if name not in [member.user.name for member in known]:
                role = member_role(fields)  # which says that it is missing
        async with self._changes.one(request, lambda: self._member_state(tenant, name)):
            member = await self._store.run(self._identities.put_member, tenant, name, email, role)
        self._controller.tokens_changed()
        return tagged(_member(member), _changeable_of(member))

    async def remove_member(self, request: web.Request) -> web.Response:
        """Ends a membership, with the member's own tokens and sign-ins there."""
        tenant, name = await self._named(request), request.match_info["name"]
        member = await self._store.run(self._identities.member, tenant, name)
        async with self._changes.one(request, lambda: self._member_state(tenant, name)):
            await self._store.run(self._identities.remove_member, tenant, name)
        self._controller.tokens_changed()
        return web.json_response(_member(member))

    async def make_link(self, request: web.Request) -> web.Response:
        """`{"url", "expires_at"}`: a link by which a member signs in once."""
        operator = access(request).operator
        if missing := lacking(access(request)):
            raise Forbidden(
                f"a link signs its visitor in for everything, and this token lacks "
                f"{', '.join(missing)} itself; use one of the scope 'api'"
            )
        secret, expires_at = await self._store.run(
            self._store.sign_ins.make_link,
            organization(request),
            request.match_info["name"],
            everywhere=operator,
            may_sign_in_operators=operator,
        )
        url = f"{self._settings.origin(request)}/login?link={secret}"
        return web.json_response({"url": url, "expires_at": expires_at.isoformat()})

    async def set_operator(self, request: web.Request) -> web.Response:
        """`{"operator": true}`, or false. Raises NotFound, and Conflict for the last one."""
        name, fields = request.match_info["name"], await body(request)
        if not fields.has("operator"):
            raise Invalid("operator: it is missing; send true or false")
        operator = fields.flag("operator")
        await self._store.run(self._identities.set_operator, name, operator=operator)
        self._controller.tokens_changed()
        return web.json_response({"name": name, "operator": operator})

    async def _named(self, request: web.Request) -> Organization:
        """The organization of the path. Raises NotFound for another's, as if it did not exist."""
        name, found = request.match_info["organization"], access(request)
        if name == found.user.organization.name:
            return found.user.organization
        if found.operator:
            return await self._store.run(self._organizations.organization, name)
        raise NotFound(f"organization {name!r:.80} does not exist")

    async def _answer(self, tenant: Organization) -> web.Response:
        summary = await self._store.run(self._organizations.summary, tenant)
        return tagged(await self._shown(summary), _changeable(tenant))

    async def _state(self, request: web.Request) -> dict[str, Any]:
        name = (await self._named(request)).name
        return _changeable(await self._store.run(self._organizations.organization, name))

    async def _member_state(self, tenant: Organization, name: str) -> dict[str, Any] | None:
        try:
            return _changeable_of(await self._store.run(self._identities.member, tenant, name))
        except NotFound:
            return None

    async def _shown(self, summary: OrganizationSummary) -> dict[str, Any]:
        tenant = summary.organization
        quota = await self._store.run(self._store.quotas.get, tenant.name)
        return {
            "name": tenant.name,
            "description": tenant.description,
            "created_at": tenant.created_at.isoformat(),
            "members": summary.members,
            "deployments": summary.deployments,
            "quota": quota_json(tenant.name, quota, self._controller.usage(tenant.name)),
        }


def _changeable(tenant: Organization) -> dict[str, Any]:
    return {"name": tenant.name, "description": tenant.description}


def _changeable_of(member: Membership) -> dict[str, Any]:
    shown = _member(member)
    return {name: shown[name] for name in ("name", "email", "role", "operator")}


def _member(member: Membership) -> dict[str, Any]:
    seen = member.last_seen_at
    return {
        "name": member.user.name,
        "email": member.user.email,
        "role": member.role,
        "operator": member.operator,
        "last_seen_at": None if seen is None else seen.isoformat(),
    }


def _email(fields: Fields) -> str:
    email = fields.text("email")
    name, separator, host = email.rpartition("@")
    if (
        len(email) > EMAIL_CHARACTERS
        or not (separator and name and host)
        or email.split() != [email]
    ):
        raise Invalid(f"email: {email!r:.80} is not an address; write name@example.com")
    return email


def _description(fields: Fields) -> str:
    text = fields.text("description", "")
    if len(text) > DESCRIPTION_CHARACTERS:
        raise Invalid(
            f"description: it has {len(text)} characters, {DESCRIPTION_CHARACTERS} are the most"
        )
    return text
