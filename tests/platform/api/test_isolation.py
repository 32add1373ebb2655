"""What belongs to another organization does not exist: every route of the application's own router,
with the objects of another organization, for each kind of caller. A new route is tried by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError, web
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.hotplate.overview import OverviewRoutes
from hotplate.platform.api.hotplate.stream import StreamRoutes
from hotplate.platform.api.web.access import LOOK_UP, need
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import AUTH, STATUS, make_app
from hotplate.platform.controller.interface import CallingReplica
from hotplate.platform.spec.scopes import OF_API, allows
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from hotplate.platform.stored_events import StoredEvents
from tests.support.control_plane.cloud import MANIFEST, MODEL_MANIFEST, Cloud
from tests.support.control_plane.controller_fake import FakeController

CASES_LEAST = 1000
TAG, NO_TAG = "theirs-", "nobody-"
"""What the names of the other organization's objects begin with, and names that nothing has."""
REPLICA = {"id": f"{TAG}replica", "service": "Echo", "state": "ready", "reason": ""}
UPLOAD = {"upload_id": "0" * 32, "part_number": 1, "parts": [{"part_number": 1, "etag": "e"}]}
VERSION = {"version": "v9", "build_at": "", "labels": [], "description": ""}
SECRET = {"type": "env", "items": [{"key": "A_KEY", "value": "theirs-value"}]}
BODIES: dict[str, dict[str, Any]] = {
    "POST /api/v2/deployments": {"name": "mine", "bento": "{tag}bento:v1", "dev": False},
    "PUT /api/v2/deployments/{name}": {"bento": "echo:v1"},
    "PATCH /api/v1/org_secrets/{name}": {"name": "{tag}secret", "content": SECRET},
    "call": {"method": "GET", "path": "/"},
    "rollout": {"action": "restart"},
    "bentos": VERSION | {"manifest": MANIFEST},
    "models": VERSION | {"manifest": MODEL_MANIFEST},
    "operator": {"operator": True},
    "finish_upload": {"status": "success", "reason": ""},
}
"""By the route, or by the last part of its path."""
MAKES = ("/api/v1/hotplate/organizations/{organization}/members/{name}",)
"""Below these paths a PUT may make what does not exist: a person of that name in one's own
organization."""


ROLES = tuple(map(str, MemberRole))
NARROW = (*OF_API, "endpoint", "endpoint:deploy", "metrics")
CALLERS = (*ROLES, *NARROW, "expired", "revoked", "made up", "nobody", "replica", "sign-in")
REPLICA_KEY = "hotplate-replica.acme-1-echo-abcde.f"
"""Of one whose bento names deployments that are called as the other organization's."""


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    """Its pattern."""

    @property
    def named(self) -> bool:
        """Whether its path names an object."""
        return "{" in self.path.replace("{cluster}", "")


@dataclass(frozen=True)
class Objects:
    """How one organization's things are called, or how nothing is."""

    tag: str
    uid: str

    def path(self, pattern: str) -> str:
        name = "deploy"
        for part, found in (("bento_", "bento"), ("model_", "model"), ("org_secrets", "secret")):
            name = found if part in pattern else name
        if "/members/" in pattern or "/users/" in pattern:
            name = "user"
        values = {
            "name": self.tag + name,
            "organization": self.tag + "org",
            "version": "v1",
            "uid": self.uid,
            "cluster": "default",
        }
        return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "any"), pattern)

    def body(self, route: Route) -> Any:
        found = BODIES.get(f"{route.method} {route.path}")
        found = BODIES.get(route.path.rpartition("/")[2]) if found is None else found
        return json.loads(json.dumps(found or UPLOAD).replace("{tag}", self.tag))


@dataclass(frozen=True)
class Caller:
    name: str
    headers: dict[str, str]
    role: MemberRole = MemberRole.ADMIN
    scopes: tuple[str, ...] = ("api",)
    status: int = 0
    """With which all is refused that they try; 0 = it depends."""

    def refused(self, route: Route) -> int:
        """The status with which they may not call a route at all; 0 = they may."""
        if self.name == "replica":
            return 0 if (route.method, route.path) == ("GET", LOOK_UP) else 403
        if self.status and not (self.status == 403 and route.method in ("GET", "HEAD")):
            return self.status
        if self.status == 403 and route.path.startswith("/ws/"):
            return 403
        needed = need(route.method, route.path)
        assert needed is not None, f"{route} has no line in the table of permissions"
        if route.path.endswith("/link") and not allows(self.scopes, "write_cluster"):
            return 403  # a link is good for more than this token
        scopes = (needed.scope,) if needed.scope else OF_API
        may = any(allows(self.scopes, scope) for scope in scopes)
        return 0 if may and not needed.operator and self.role.is_at_least(needed.role) else 403


@dataclass
class World:
    server: Any
    theirs: Objects
    nothing: Objects
    callers: list[Caller]
    operator: dict[str, str]
    routes: list[Route]
    addresses: Iterator[int] = field(default_factory=lambda: count(1))

    def from_elsewhere(self, headers: dict[str, str]) -> dict[str, str]:
        """Each wrong token comes from another address, so that no limit of tries is met."""
        number = next(self.addresses)
        return headers | {"X-Forwarded-For": f"198.18.{number >> 8}.{number & 255}"}


def routes_of(app: web.Application) -> list[Route]:
    """All that want a caller; of a route for any method, one that reads and one that changes."""
    return [route for route in all_routes(app) if need("GET", route.path) is not None]


@asynccontextmanager
async def other_organization(
    store: Store, blobs: BlobStore, controller: FakeController
) -> AsyncIterator[World]:
    settings = ApiSettings(trusted_proxies=("127.0.0.1",))
    app = make_app(store, blobs, controller, settings)
    overview = OverviewRoutes(
        store.history, StoredEvents(store), capacity=dict, roles=list, disks=list, short=list
    )
    app.add_routes(overview.routes())
    StreamRoutes(store.deployments, app[AUTH], controller, app[STATUS], overview, settings).add_to(
        app
    )
    controller.replicas = [REPLICA]
    acme = store.identities.ensure_user("acme", "a-admin", "").organization
    opens = frozenset([f"{TAG}deploy", f"{NO_TAG}deploy"])
    controller.calling[REPLICA_KEY] = CallingReplica("acme-1-echo-abcde", acme, opens)
    org = f"{TAG}org"
    async with TestServer(app) as server, Cloud(server, store, org, name=f"{TAG}user") as their:
        await their.push_bento(f"{TAG}bento")
        await their.register("model", f"{TAG}model", "v1")
        secret = {"name": f"{TAG}secret", "content": SECRET}
        await their.call("POST", "/api/v1/org_secrets", secret)
        await their.call("POST", "/api/v1/api_tokens", {"name": f"{TAG}token"})
        await their.deploy(f"{TAG}deploy", bento=f"{TAG}bento:v1")
        await controller.settled()
        uid = store.tokens.tokens(their.user.organization.id)[0].uid
        operator = Cloud(server, store, "default", name="root", operator=True)
        yield World(
            server,
            Objects(TAG, uid),
            Objects(NO_TAG, "f" * len(uid)),
            [*callers(store), await signed_in(store, server)],
            {"X-YATAI-API-TOKEN": operator.token, "X-Hotplate-Organization": org},
            routes_of(app),
        )


def callers(store: Store) -> list[Caller]:
    """Of organization acme."""
    found = []
    for role in MemberRole:
        user = store.identities.ensure_user("acme", f"a-{role}", "", role)
        token = store.tokens.add_token(user, str(role))
        found.append(Caller(str(role), {"X-YATAI-API-TOKEN": token}, role))
    admin = store.identities.ensure_user("acme", "a-admin", "")
    for scope in NARROW:
        token = store.tokens.add_token(admin, scope, scopes=[scope])
        found.append(Caller(scope, {"X-YATAI-API-TOKEN": token}, scopes=(scope,)))
    past = datetime.now(UTC) - timedelta(seconds=1)
    expired = store.tokens.add_token(admin, "expired", expires_at=past)
    revoked = store.tokens.add_token(admin, "revoked")
    gone = next(one for one in store.tokens.tokens(admin.organization.id) if one.name == "revoked")
    store.tokens.revoke_token(admin.organization.id, gone.uid)
    for name, token in (("expired", expired), ("revoked", revoked), ("made up", "f" * 64)):
        found.append(Caller(name, {"X-YATAI-API-TOKEN": token}, status=401))
    found.append(Caller("nobody", {}, status=401))
    found.append(Caller("replica", {"X-YATAI-API-TOKEN": REPLICA_KEY}))
    return found


async def signed_in(store: Store, server: Any) -> Caller:
    """By a cookie, and without the header that says from whose page a request comes."""
    admin = store.identities.ensure_user("acme", "a-admin", "")
    secret, _ = store.sign_ins.make_link(
        admin.organization, "a-admin", everywhere=False, may_sign_in_operators=False
    )
    cookie = store.sign_ins.follow_link(secret)
    return Caller("sign-in", {"Cookie": f"hotplate_sign_in={cookie}"}, status=403)


async def asked(
    world: World, http: ClientSession, route: Route, objects: Objects, headers: dict[str, str]
) -> tuple[int, str]:
    """The status, and the body without the names that were asked for."""
    path, headers = objects.path(route.path), world.from_elsewhere(headers)
    if path.startswith("/ws/"):
        return await connected(http, path, objects, headers)
    data = None if route.method == "GET" else json.dumps(objects.body(route))
    async with http.request(route.method, path, data=data, headers=headers) as answer:
        status, text = answer.status, await answer.text(errors="replace")
    if status == 200:
        return status, text
    return status, text.replace(objects.tag, "?").replace(objects.uid, "?")


async def connected(
    http: ClientSession, path: str, objects: Objects, headers: dict[str, str]
) -> tuple[int, str]:
    """What a WebSocket says first; its refusals of objects are messages."""
    path += f"?pod_name={objects.tag}deploy/{objects.tag}replica"
    path += f"&selector=yatai.ai/bento-repository={objects.tag}bento"
    try:
        async with http.ws_connect(path, headers=headers) as socket:
            await socket.send_json({"type": "data", "payload": {}})
            message = await socket.receive()
            assert message.type is WSMsgType.TEXT
            said = message.json()
            status = 404 if said["type"] == "error" else 200
            text = str(message.data)
            return status, text if status == 200 else text.replace(objects.tag, "?")
    except WSServerHandshakeError as refusal:
        return refusal.status, ""


def check_case(
    case: str, caller: Caller, route: Route, theirs: tuple[int, str], nothing: tuple[int, str]
) -> None:
    (status, text), refused = theirs, caller.refused(route)
    assert status != 500, case
    if refused:
        assert status == refused, f"{case}: {status} {text}"
        return
    if not route.named and status == 200:
        if route.path.endswith("/audit"):  # which repeats what this organization has tried
            text = "".join(one["organization"] for one in json.loads(text)["items"])
        assert TAG not in text, f"{case} tells of another's: {text}"
        return
    assert theirs == nothing, f"{case}: {theirs} is not {nothing}"
    if route.named and not (route.method == "PUT" and route.path in MAKES):
        assert status == 404, f"{case}: {status} {text}"


@pytest.mark.parametrize("name", CALLERS)
async def test_what_is_another_s_does_not_exist(
    store: Store, blobs: BlobStore, controller: FakeController, name: str
) -> None:
    async with other_organization(store, blobs, controller) as world:
        assert [caller.name for caller in world.callers] == list(CALLERS)
        assert len(world.routes) * len(CALLERS) >= CASES_LEAST
        caller = world.callers[CALLERS.index(name)]
        async with ClientSession(str(world.server.make_url("/"))) as http:
            before = await seen_by_operator(world, http)
            for route in world.routes:
                theirs = await asked(world, http, route, world.theirs, caller.headers)
                nothing = theirs
                if not caller.refused(route):
                    nothing = await asked(world, http, route, world.nothing, caller.headers)
                check_case(f"{route.method} {route.path}", caller, route, theirs, nothing)
            assert await seen_by_operator(world, http) == before, "nothing of theirs was changed"
        assert sum(status == 200 for status, _ in before.values()) > 20, "the objects are there"


async def seen_by_operator(world: World, http: ClientSession) -> dict[Route, tuple[int, str]]:
    """All that can be read of the objects, by somebody who may; series go on by themselves."""
    named = [one for one in world.routes if one.method == "GET" and one.named]
    named = [one for one in named if not one.path.endswith("/series")]
    found = {}
    for route in named:
        if not route.path.startswith("/ws/") and "_tokens" not in route.path:
            found[route] = await asked(world, http, route, world.theirs, world.operator)
    return found


async def test_a_replica_s_key_opens_what_its_bento_names_and_nothing_else(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    async with other_organization(store, blobs, controller) as world:
        mine = store.organizations.organization(f"{TAG}org")
        opens = frozenset([f"{TAG}deploy"])
        controller.calling[REPLICA_KEY] = CallingReplica(f"{TAG}replica", mine, opens)
        headers = {"X-YATAI-API-TOKEN": REPLICA_KEY, "Authorization": f"Bearer {REPLICA_KEY}"}
        opened = []
        async with ClientSession(str(world.server.make_url("/"))) as http:
            for route in all_routes(world.server.app):
                if route.path == "/api/v1/auth/code":  # it answers anybody, each with another
                    continue
                status, text = await asked(world, http, route, world.theirs, headers)
                if status == 403 and need("GET", route.path) is not None:
                    continue
                if status == 200 and (route.method, route.path) == ("GET", LOOK_UP):
                    opened.append(text)
                    continue
                nobody = await asked(world, http, route, world.theirs, {})
                assert status == 403 or (status, text) == nobody, f"{route}: {status} {text}"
            for other in (f"{TAG}other", f"{TAG}deploy%2F..%2F{TAG}deploy", f"{TAG}DEPLOY"):
                path = f"/api/v2/deployments/{other}"
                async with http.get(path, headers=headers) as answer:
                    assert answer.status == 403, "whether there is one is not told"
            elsewhere = headers | {"X-Hotplate-Organization": "acme"}
            async with http.get(f"/api/v2/deployments/{TAG}deploy", headers=elsewhere) as answer:
                assert answer.status == 404
        (found,) = opened
        target = json.loads(found)["latest_revision"]["targets"][0]
        assert target["config"] is None, "its variables are not the caller's"


def all_routes(app: web.Application) -> list[Route]:
    """Those that need nobody too."""
    found = []
    for route in app.router.routes():
        path = "" if route.resource is None else route.resource.canonical
        if route.method != "HEAD":
            methods = ("GET", "POST") if route.method == "*" else (route.method,)
            found += [Route(method, path) for method in methods]
    return found
