"""The table of what calls need: nothing is left out, and what it says is held to."""

from __future__ import annotations

import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.access import need
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.spec.scopes import OF_API
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

GUARDED = ("/api/", "/ws/")
WITHOUT_TOKEN = {"/api/v1/auth/code", "/api/v1/auth/token"}


async def test_every_route_has_a_line(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    api = make_app(store, blobs, controller, ApiSettings())
    guarded = {
        (route.method, route.resource.canonical)
        for route in api.router.routes()
        if route.resource is not None and route.resource.canonical.startswith(GUARDED)
    }
    assert len(guarded) > 60
    without = {(m, path) for m, path in guarded if need(m, path) is None}
    assert {path for _, path in without} == WITHOUT_TOKEN


@pytest.mark.parametrize("path", ["platform", "standby", "quotas/{organization}", "organizations"])
def test_what_the_installation_is_changed_by_is_the_operators(path: str) -> None:
    needed = need("PUT", f"/api/v1/hotplate/{path}")
    assert needed is not None
    assert needed.operator


READS = ["/api/v1/bentos", "/api/v1/models", "/api/v1/api_tokens", "/api/v1/current_org"]
DEVELOPS = ["/api/v2/deployments", "/api/v1/hotplate/deployments", "/api/v1/instance_types"]
ADMINISTERS = ["/api/v1/hotplate/organizations/acme/members"]


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (MemberRole.ENDPOINT_USER, READS),
        (MemberRole.DEVELOPER, READS + DEVELOPS),
        (MemberRole.ADMIN, READS + DEVELOPS + ADMINISTERS),
    ],
)
async def test_a_role_may_what_is_said_and_a_refusal_names_the_role_needed(
    cloud: Cloud, role: MemberRole, allowed: list[str]
) -> None:
    async with Cloud(cloud.server, cloud.store, name="bob", role=role) as bob:
        for path in READS + DEVELOPS + ADMINISTERS:
            if path in allowed:
                await bob.call("GET", path)
                continue
            needed = "admin" if path in ADMINISTERS else "developer"
            with pytest.raises(Refused, match=rf"403.*needs the role '{needed}' in .*'acme'"):
                await bob.call("GET", path)


@pytest.mark.parametrize("scope", [*OF_API, "metrics", "endpoint", "endpoint:echo"])
async def test_a_token_may_no_more_than_its_scopes(cloud: Cloud, scope: str) -> None:
    await cloud.push_bento()
    async with Cloud(cloud.server, cloud.store, name="bob", scopes=[scope]) as bob:
        calls = {
            "read_organization": ("GET", "/api/v1/bentos", None),
            "write_organization": (
                "POST",
                "/api/v1/bento_repositories",
                {"name": "another", "description": ""},
            ),
            "read_cluster": ("GET", "/api/v2/deployments", None),
            "write_cluster": ("POST", "/api/v2/deployments", {"name": "e", "bento": "echo:v1"}),
        }
        allowed = {scope, scope.replace("write", "read")}
        for needed, (method, path, body) in calls.items():
            if needed in allowed:
                await bob.call(method, path, body)
            else:
                with pytest.raises(Refused, match=rf"403.*'laptop' lacks the scope '{needed}'"):
                    await bob.call(method, path, body)


async def test_an_operator_acts_for_any_organization_and_nobody_else(cloud: Cloud) -> None:
    acting = {"X-Hotplate-Organization": "acme"}
    async with Cloud(cloud.server, cloud.store, "default", name="admin", operator=True) as operator:
        operator.http.headers.update(acting)
        assert (await operator.call("GET", "/api/v1/current_org"))["name"] == "acme"
        await operator.push_bento()
        assert [one["name"] for one in (await cloud.call("GET", "/api/v1/bentos"))["items"]] == [
            "v1"
        ]
        operator.http.headers["X-Hotplate-Organization"] = "nowhere"
        with pytest.raises(Refused, match=r"404.*organization 'nowhere' does not exist"):
            await operator.call("GET", "/api/v1/current_org")
    # Eve is a member of both, and this token is for one of them.
    cloud.store.identities.ensure_user("acme", "eve", "eve@example.com")
    async with Cloud(cloud.server, cloud.store, "rival", name="eve") as eve:
        eve.http.headers.update(acting)
        with pytest.raises(Refused, match=r"404.*organization 'acme' does not exist"):
            await eve.call("GET", "/api/v1/current_org")
