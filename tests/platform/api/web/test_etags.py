"""Changes that say what they are changes of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.support.control_plane.cloud import Cloud

API = "/api/v1"


@pytest.fixture
async def operator(cloud: Cloud) -> Cloud:
    cloud.store.identities.ensure_operator(cloud.user)
    cloud.store.identities.ensure_user("acme", "bob", "bob@x.com")
    cloud.token = cloud.store.tokens.add_token(cloud.user, "operator", operator=True)
    await cloud.http.close()
    cloud.http = ClientSession(cloud.url, headers={"X-YATAI-API-TOKEN": cloud.token})
    content = {"type": "env", "items": [{"key": "KEY", "value": "value"}]}
    await cloud.call("POST", f"{API}/org_secrets", {"name": "keys", "content": content})
    return cloud


async def tag_of(cloud: Cloud, path: str) -> str:
    async with cloud.http.get(API + path) as response:
        assert response.status == 200
        return response.headers["ETag"]


async def change(
    cloud: Cloud, method: str, path: str, body: dict[str, Any], tag: str | None = None
) -> tuple[int, str]:
    headers = {} if tag is None else {"If-Match": tag}
    async with cloud.http.request(method, API + path, json=body, headers=headers) as response:
        answer = await response.json()
        return response.status, answer["error"]["code"] if response.status != 200 else ""


CHANGES = [
    pytest.param("PUT", "/hotplate/quotas/acme", {"weight": 2}, {"weight": 3}, id="quota"),
    pytest.param(
        "PATCH",
        "/hotplate/organizations/acme",
        {"description": "a"},
        {"description": "b"},
        id="organization",
    ),
    pytest.param(
        "PUT",
        "/hotplate/organizations/acme/members/bob",
        {"role": "endpoint-user"},
        {"role": "developer"},
        id="member",
    ),
    pytest.param(
        "PATCH",
        "/org_secrets/keys",
        {"description": "a"},
        {"content": {"type": "env", "items": [{"key": "KEY", "value": "other"}]}},
        id="secret",
    ),
]


@pytest.mark.parametrize(("method", "path", "first", "second"), CHANGES)
async def test_a_change_of_what_was_changed_meanwhile_is_refused(
    operator: Cloud, method: str, path: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    tag = await tag_of(operator, path)
    assert tag == await tag_of(operator, path)
    assert await change(operator, method, path, first, tag) == (200, "")
    assert await change(operator, method, path, second, tag) == (412, "changed_meanwhile")
    fresh = await tag_of(operator, path)
    assert fresh != tag
    assert await change(operator, method, path, second, f'"another", {fresh}') == (200, "")
    assert await change(operator, method, path, first, "*") == (200, "")
    assert await change(operator, method, path, second) == (200, "")


@pytest.mark.parametrize(("method", "path", "first", "second"), CHANGES)
async def test_of_two_changes_at_once_of_the_same_one_is_made(
    operator: Cloud, method: str, path: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    tag = await tag_of(operator, path)
    done = await asyncio.gather(
        *(change(operator, method, path, body, tag) for body in (first, second))
    )
    assert sorted(status for status, _ in done) == [200, 412]


GONE = [
    pytest.param("/hotplate/organizations/rival", "PATCH", {"description": "a"}, id="organization"),
    pytest.param(
        "/hotplate/organizations/acme/members/bob", "PUT", {"role": "developer"}, id="member"
    ),
    pytest.param("/org_secrets/keys", "PATCH", {"description": "a"}, id="secret"),
]


@pytest.mark.parametrize(("path", "method", "body"), GONE)
async def test_what_was_changed_meanwhile_is_not_deleted(
    operator: Cloud, path: str, method: str, body: dict[str, Any]
) -> None:
    operator.store.organizations.create("rival")
    tag = await tag_of(operator, path)
    assert await change(operator, method, path, body, tag) == (200, "")
    assert await change(operator, "DELETE", path, {}, tag) == (412, "changed_meanwhile")
    assert await change(operator, "DELETE", path, {}, await tag_of(operator, path)) == (200, "")


async def test_what_there_is_not_has_no_state_to_change(operator: Cloud) -> None:
    path, eve = (
        "/hotplate/organizations/acme/members/eve",
        {"email": "eve@x.com", "role": "developer"},
    )
    for tag in ("*", '"another"'):
        assert await change(operator, "PUT", path, eve, tag) == (412, "changed_meanwhile")
    assert await change(operator, "PUT", path, eve) == (200, "")


async def test_a_roll_out_is_of_the_deployment_that_was_read(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    tag = await tag_of(cloud, "/hotplate/deployments/echo")
    assert tag == await tag_of(cloud, "/hotplate/deployments/echo/rollout")
    path, restart = "/hotplate/deployments/echo/rollout", {"action": "restart"}
    assert await change(cloud, "POST", path, restart, tag) == (200, "")
    assert await change(cloud, "POST", path, restart, tag) == (412, "changed_meanwhile")
    assert (
        len((await cloud.call("GET", f"{API}/hotplate/deployments/echo/revisions"))["items"]) == 2
    )


async def test_each_of_the_clients_changes_at_once_makes_its_revision(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    bodies = [{"bento": "echo:v1", "envs": [{"name": "N", "value": str(n)}]} for n in range(6)]
    await asyncio.gather(*(cloud.call("PUT", "/api/v2/deployments/echo", body) for body in bodies))
    found = (await cloud.call("GET", f"{API}/hotplate/deployments/echo/revisions"))["items"]
    assert [one["number"] for one in found] == [7, 6, 5, 4, 3, 2, 1]
    values = {one["config"]["envs"][0]["value"] for one in found if one["config"]["envs"]}
    assert values == set("012345")


async def test_settings_are_changed_as_they_were_read(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    tag = await tag_of(cloud, "/hotplate/deployments/echo")
    for label, tagged, wanted in (("a", tag, 200), ("b", tag, 412), ("c", None, 200)):
        body = {"bento": "echo:v1", "labels": [{"key": "team", "value": label}]}
        headers = {} if tagged is None else {"If-Match": tagged}
        path = "/api/v2/deployments/echo"
        async with cloud.http.put(path, json=body, headers=headers) as answer:
            assert answer.status == wanted, await answer.text()
    labels = (await cloud.call("GET", f"{API}/hotplate/deployments/echo"))["labels"]
    assert labels == [{"key": "team", "value": "c"}]
