"""What somebody who has read the code tries: to be more than they are."""

from __future__ import annotations

from typing import Any

import pytest

from hotplate.platform.errors import Conflict
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud, Refused

TOKENS = "/api/v1/api_tokens"
MEMBERS = "/api/v1/hotplate/organizations/acme/members"


async def service(cloud: Cloud, role: str) -> Any:
    return await cloud.call("POST", TOKENS, {"name": f"ci-{role}", "service": True, "role": role})


async def approved(cloud: Cloud, token: str) -> int:
    """The status of the approval of a login by who signs in with a token."""
    async with Cloud(cloud.server, cloud.store) as other:
        other.http.headers.clear()
        code = (await other.call("GET", "/api/v1/auth/code"))["code"]
        async with other.http.post("/login", data={"token": token}, allow_redirects=False) as said:
            assert said.status == 303
        origin = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
        form = {"code": code, "answer": "approve"}
        async with other.http.post("/api_tokens", data=form, headers=origin) as said:
            return said.status


@pytest.mark.parametrize("role", ["developer", "admin"])
async def test_a_token_of_the_organization_is_not_its_maker(cloud: Cloud, role: str) -> None:
    """Ada is an admin. What a developer's pipeline has is no way to her rights."""
    made = await service(cloud, role)
    mine = (await cloud.call("GET", TOKENS))["items"][-1]["uid"]
    assert await approved(cloud, made["token"]) == 403
    cloud.http.headers["X-YATAI-API-TOKEN"] = made["token"]
    with pytest.raises(Refused, match=r"403.*makes no token of a person"):
        await cloud.call("POST", TOKENS, {"name": "hers"})
    if role == "developer":
        listed = (await cloud.call("GET", TOKENS))["items"]
        assert [token["uid"] for token in listed] == [made["uid"]]
        with pytest.raises(Refused, match="404"):
            await cloud.call("DELETE", f"{TOKENS}/{mine}")
        with pytest.raises(Refused, match="403"):
            await service(cloud, "admin")


@pytest.mark.parametrize("scope", ["read_organization", "write_organization", "write_cluster"])
async def test_a_narrow_token_signs_in_and_stays_narrow(cloud: Cloud, scope: str) -> None:
    narrow = cloud.store.tokens.add_token(cloud.user, "narrow", scopes=[scope])
    assert await approved(cloud, narrow) == 403
    cloud.http.headers["X-YATAI-API-TOKEN"] = narrow
    with pytest.raises(Refused, match="403"):
        await cloud.call("POST", TOKENS, {"name": "wide", "scopes": ["api"]})
    with pytest.raises(Refused, match=r"403.*(lacks the scope|this token lacks)"):
        await cloud.call("POST", "/api/v1/hotplate/users/ada/link", {})


async def test_a_developer_makes_nobody_an_admin(cloud: Cloud, store: Store) -> None:
    async with Cloud(cloud.server, store, name="dan", role=MemberRole.DEVELOPER) as dan:
        for method, path, body in (
            ("POST", TOKENS, {"name": "x", "service": True, "role": "admin"}),
            ("PUT", f"{MEMBERS}/dan", {"role": "admin"}),
            ("POST", "/api/v1/hotplate/users/ada/link", {}),
            ("PUT", "/api/v1/hotplate/users/dan/operator", {"operator": True}),
        ):
            with pytest.raises(Refused, match="403"):
                await dan.call(method, path, body)


async def test_an_operator_makes_no_token_of_theirs_where_they_are_no_member(
    cloud: Cloud, store: Store
) -> None:
    async with Cloud(cloud.server, store, "default", name="root", operator=True) as root:
        root.http.headers["X-Hotplate-Organization"] = "acme"
        with pytest.raises(Refused, match=r"409.*not a member of organization 'acme'"):
            await root.call("POST", TOKENS, {"name": "dead"})
        made = await service(root, "developer")
    cloud.http.headers["X-YATAI-API-TOKEN"] = made["token"]
    await cloud.call("GET", "/api/v2/deployments")


async def test_the_last_operator_is_neither_removed_nor_deleted_with_an_organization(
    cloud: Cloud, store: Store
) -> None:
    store.identities.ensure_user("acme", "eve", "")
    store.identities.set_operator("ada", operator=True)
    with pytest.raises(Refused, match=r"409.*'ada' is the last operator"):
        await cloud.call("DELETE", f"{MEMBERS}/ada")
    with pytest.raises(Conflict, match="last operator"):
        store.organizations.delete("acme", force=True)


@pytest.mark.parametrize("scope", ["endpoint:../x", "endpoint:A", "endpoint:" + "a" * 10_000])
async def test_a_scope_names_a_deployment_or_nothing(cloud: Cloud, scope: str) -> None:
    with pytest.raises(Refused, match=r"400.*is not a deployment name"):
        await cloud.call("POST", TOKENS, {"name": "x", "scopes": [scope]})
