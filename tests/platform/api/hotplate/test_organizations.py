"""Organizations, their members, and who may change them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController

ROOT = "/api/v1/hotplate/organizations"


@pytest.fixture
async def operator(cloud: Cloud) -> AsyncIterator[Cloud]:
    made = Cloud(cloud.server, cloud.store, "default", name="admin", operator=True)
    async with made as operator:
        yield operator


async def test_an_operator_makes_describes_and_deletes_them(operator: Cloud) -> None:
    made = await operator.call("POST", ROOT, {"name": "umbrella", "description": "rain"})
    assert {name: made[name] for name in ("name", "description", "members", "deployments")} == {
        "name": "umbrella",
        "description": "rain",
        "members": 0,
        "deployments": 0,
    }
    assert made["quota"]["organization"] == "umbrella"
    listed = await operator.call("GET", ROOT)
    assert [one["name"] for one in listed["items"]] == ["acme", "default", "umbrella"]
    assert listed["total"] == 3
    changed = await operator.call("PATCH", f"{ROOT}/umbrella", {"description": "sun"})
    assert changed["description"] == "sun"
    with pytest.raises(Refused, match=r"400.*an organization's name never changes"):
        await operator.call("PATCH", f"{ROOT}/umbrella", {"name": "parasol"})
    with pytest.raises(Refused, match=r"409.*already exists"):
        await operator.call("POST", ROOT, {"name": "umbrella"})
    await operator.call("DELETE", f"{ROOT}/umbrella")
    with pytest.raises(Refused, match=r"404.*'umbrella' does not exist"):
        await operator.call("GET", f"{ROOT}/umbrella")


@pytest.mark.parametrize("name", ["Acme", "a" * 41, "-a", "a_b", "../x", "ä"])
async def test_a_name_is_a_dns_label(operator: Cloud, name: str) -> None:
    with pytest.raises(Refused, match=r"400.*is not an organization's name"):
        await operator.call("POST", ROOT, {"name": name})


async def test_one_with_deployments_goes_by_force_only_and_leaves_nothing(
    operator: Cloud, cloud: Cloud, store: Store, controller: FakeController
) -> None:
    await cloud.push_bento()
    content = {"type": "env", "items": [{"key": "TOKEN", "value": "x"}]}
    await cloud.call("POST", "/api/v1/org_secrets", {"name": "hf", "content": content})
    await cloud.deploy(secrets=["hf"])
    with pytest.raises(Refused, match=r"409.*has deployments \('echo'\)"):
        await operator.call("DELETE", f"{ROOT}/acme")
    (ending,) = store.organizations.delete("acme", force=True)  # a controller that is slow
    for path, said in ((f"{ROOT}/acme", "404"), ("/api/v1/hotplate/quotas/acme", "404")):
        with pytest.raises(Refused, match=said):
            await operator.call("GET", path)
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/current_org")
    with pytest.raises(Refused, match=r"409.*is still being deleted"):
        await operator.call("POST", ROOT, {"name": "acme"})
    store.organizations.finish_deletions()
    assert store.deployments.served_organizations() == ["acme"], "it still ends"
    controller.poke(ending)
    await controller.settled()
    store.organizations.finish_deletions()
    made = await operator.call("POST", ROOT, {"name": "acme"})
    assert (made["members"], made["deployments"]) == (0, 0)
    async with Cloud(cloud.server, store, name="eve") as eve:
        assert (await eve.call("GET", "/api/v1/bentos"))["items"] == []
        assert (await eve.call("GET", "/api/v1/org_secrets"))["items"] == []
    assert store.secrets.encrypted() == 0
    assert "ada" not in [m.user.name for m in store.identities.members(eve.user.organization.id)]


async def test_a_canary_s_versions_are_no_deployments_and_what_ends_is_none(
    operator: Cloud, cloud: Cloud
) -> None:
    await cloud.push_bento()
    version = {"bento": "echo:v1", "weight": 10}
    await cloud.deploy(canary={"route_type": "random", "versions": {"next": version}})
    assert (await operator.call("GET", f"{ROOT}/acme"))["deployments"] == 1
    with pytest.raises(Refused, match=r"409.*has deployments \('echo'\)"):
        await operator.call("DELETE", f"{ROOT}/acme")
    cloud.store.deployments.delete(cloud.store.deployments.all()[0].id)
    assert (await operator.call("GET", f"{ROOT}/acme"))["deployments"] == 0


async def test_the_operators_own_stays(operator: Cloud) -> None:
    with pytest.raises(Refused, match=r"409.*cannot be deleted"):
        await operator.call("DELETE", f"{ROOT}/default?force=true")


async def test_an_admin_says_who_is_in_and_with_which_role(cloud: Cloud) -> None:
    members = f"{ROOT}/acme/members"
    with pytest.raises(Refused, match=r"400.*role: "):
        await cloud.call("PUT", f"{members}/bob", {"email": "bob@example.com"})
    with pytest.raises(Refused, match=r"400.*there is no 'developper'; did you mean 'developer'"):
        await cloud.call("PUT", f"{members}/bob", {"email": "b@x.com", "role": "developper"})
    with pytest.raises(Refused, match=r"400.*email: 'bob' is not an address"):
        await cloud.call("PUT", f"{members}/bob", {"email": "bob", "role": "developer"})
    added = await cloud.call("PUT", f"{members}/bob", {"email": "b@x.com", "role": "developer"})
    assert added == {
        "name": "bob",
        "email": "b@x.com",
        "role": "developer",
        "operator": False,
        "last_seen_at": None,
    }
    changed = await cloud.call("PUT", f"{members}/bob", {"role": "endpoint-user"})
    assert (changed["email"], changed["role"]) == ("b@x.com", "endpoint-user")
    listed = await cloud.call("GET", members)
    assert [(one["name"], one["role"]) for one in listed["items"]] == [
        ("ada", "admin"),
        ("bob", "endpoint-user"),
    ]
    with pytest.raises(Refused, match=r"409.*'ada' is the last admin"):
        await cloud.call("PUT", f"{members}/ada", {"role": "developer"})
    with pytest.raises(Refused, match=r"409.*'ada' is the last admin"):
        await cloud.call("DELETE", f"{members}/ada")
    await cloud.call("DELETE", f"{members}/bob")
    with pytest.raises(Refused, match=r"404.*'bob' is not a member"):
        await cloud.call("DELETE", f"{members}/bob")


async def test_a_personal_token_ends_with_the_membership_and_a_service_s_does_not(
    cloud: Cloud, store: Store
) -> None:
    async with Cloud(cloud.server, store, name="bob") as bob:
        service = await bob.call(
            "POST", "/api/v1/api_tokens", {"name": "ci", "service": True, "role": "developer"}
        )
        assert service["is_organization_token"]
        await cloud.call("DELETE", f"{ROOT}/acme/members/bob")
        with pytest.raises(Refused, match="401"):
            await bob.call("GET", "/api/v1/current_org")
        bob.http.headers["X-YATAI-API-TOKEN"] = service["token"]
        await bob.call("GET", "/api/v2/deployments")
        with pytest.raises(Refused, match=r"403.*needs the role 'admin'"):
            await bob.call("GET", f"{ROOT}/acme/members")


async def test_another_organization_does_not_exist(cloud: Cloud, store: Store) -> None:
    store.organizations.create("rival")
    for path in (f"{ROOT}/rival", f"{ROOT}/rival/members", "/api/v1/hotplate/quotas/rival"):
        with pytest.raises(Refused, match=r"404.*organization 'rival' does not exist"):
            await cloud.call("GET", path)
        with pytest.raises(Refused, match=r"404.*organization 'nowhere' does not exist"):
            await cloud.call("GET", path.replace("rival", "nowhere"))
    with pytest.raises(Refused, match=r"403.*needs an operator"):
        await cloud.call("POST", ROOT, {"name": "mine"})
    with pytest.raises(Refused, match=r"403.*needs an operator"):
        await cloud.call("DELETE", f"{ROOT}/acme")
    assert [one["name"] for one in (await cloud.call("GET", ROOT))["items"]] == ["acme"]


async def test_an_admin_of_one_organization_does_not_reach_another_by_a_common_member(
    cloud: Cloud, store: Store
) -> None:
    """Eve adds the operator, and somebody of the rival, to her own organization, and signs in as
    them: she is still in her own organization, and no operator."""
    store.identities.ensure_user("default", "root", "")
    store.identities.set_operator("root", operator=True)
    store.identities.ensure_user("rival", "bob", "bob@rival.example")
    for name in ("bob", "root"):
        await cloud.call(
            "PUT", f"{ROOT}/acme/members/{name}", {"email": "e@acme.example", "role": "admin"}
        )
    (bob, *_), _ = [
        [
            m
            for m in store.identities.members(store.organizations.organization(of).id)
            if m.user.name == "bob"
        ]
        for of in ("rival", "acme")
    ]
    assert bob.user.email == "bob@rival.example", "what acme says of him is not shown here"
    with pytest.raises(Refused, match=r"409.*is an operator"):
        await cloud.call("POST", "/api/v1/hotplate/users/root/link", {})
    link = (await cloud.call("POST", "/api/v1/hotplate/users/bob/link", {}))["url"]
    cloud.http.headers.clear()
    async with cloud.http.post("/login", data={"link": link.partition("link=")[2]}) as answer:
        assert answer.status == 200
    organization = (await cloud.call("GET", "/api/v1/current_org"))["name"]
    assert organization == "acme"
    cloud.http.headers["X-Hotplate-Organization"] = "rival"
    with pytest.raises(Refused, match="404"):
        await cloud.call("GET", "/api/v1/current_org")


async def test_an_operator_makes_operators_and_the_last_one_stays(
    operator: Cloud, store: Store
) -> None:
    path = "/api/v1/hotplate/users/ada/operator"
    store.identities.ensure_user("acme", "ada", "")
    assert await operator.call("PUT", path, {"operator": True}) == {"name": "ada", "operator": True}
    token = store.tokens.add_token(
        store.identities.ensure_user("acme", "ada", ""), "o", operator=True
    )
    found = store.tokens.find_token(token)
    assert found is not None
    assert found.operator
    await operator.call("PUT", path, {"operator": False})
    found = store.tokens.find_token(token)
    assert found is not None
    assert not found.operator
    with pytest.raises(Refused, match=r"409.*last operator"):
        await operator.call("PUT", path.replace("ada", "admin"), {"operator": False})
    with pytest.raises(Refused, match=r"404.*'nobody' does not exist"):
        await operator.call("PUT", path.replace("ada", "nobody"), {"operator": True})


async def test_a_role_s_tokens(cloud: Cloud, store: Store) -> None:
    tokens = "/api/v1/api_tokens"
    async with Cloud(cloud.server, store, name="bob", role=MemberRole.ENDPOINT_USER) as bob:
        with pytest.raises(Refused, match=r"403.*needs the role 'developer'"):
            await bob.call("POST", tokens, {"name": "mine", "scopes": ["api"]})
        made = await bob.call("POST", tokens, {"name": "mine", "scopes": ["endpoint"]})
        with pytest.raises(Refused, match=r"403.*needs the role 'admin'"):
            await bob.call(
                "POST",
                tokens,
                {"name": "s", "scopes": ["endpoint"], "service": True, "role": "admin"},
            )
        names = {one["name"] for one in (await bob.call("GET", tokens))["items"]}
        assert names == {"laptop", "mine"}
        assert {one["user"]["name"] for one in (await bob.call("GET", tokens))["items"]} == {"bob"}
        ada = (await cloud.call("GET", tokens))["items"]
        assert {one["user"]["name"] for one in ada} == {"ada", "bob"}
        hers = next(one for one in ada if one["user"]["name"] == "ada")
        with pytest.raises(Refused, match="404"):
            await bob.call("DELETE", f"{tokens}/{hers['uid']}")
        await cloud.call("DELETE", f"{tokens}/{made['uid']}")
