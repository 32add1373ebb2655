"""Who gets which page of the dashboard, before any script has run."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from hotplate.platform.dashboard.frames import FRAMES
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud

BROWSER = {"Accept": "text/html,*/*"}
PARTS = {"name": "echo", "version": "v1"}
OPERATORS = ("/platform", "/organizations")


async def look(cloud: Cloud, path: str) -> tuple[int, str, str]:
    """Status, text and where it leads, for a browser."""
    async with cloud.http.get(path, headers=BROWSER, allow_redirects=False) as answer:
        return answer.status, await answer.text(), answer.headers.get("Location", "")


async def sign_in(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    async with cloud.http.post("/login", data={"token": cloud.token}, allow_redirects=False):
        pass


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.page)
async def test_who_has_not_signed_in_is_asked_to_and_comes_back(
    cloud: Cloud, frame: object
) -> None:
    path = frame.path.format(**PARTS) + "?range=6h"  # type: ignore[attr-defined]
    async with ClientSession(cloud.server.make_url("/")) as http:
        far = BROWSER | {"X-Forwarded-For": "198.18.0.1"}
        async with http.get(path, headers=far, allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Location"] == (
                f"/login?next={path.replace('/', '%2F').replace('?', '%3F').replace('=', '%3D')}"
            )


async def test_a_page_names_itself_and_says_what_it_needs(cloud: Cloud) -> None:
    await sign_in(cloud)
    status, text, _ = await look(cloud, "/deployments")
    assert status == 200
    assert '<main id="main" data-page="deployments" aria-busy="true"' in text
    assert "This page needs scripts" in text


@pytest.mark.parametrize("path", ["/deployments/nobody", "/deployments/nobody/logs", "/nowhere"])
async def test_what_there_is_not_is_a_page_with_the_way_back(cloud: Cloud, path: str) -> None:
    await sign_in(cloud)
    status, text, _ = await look(cloud, path)
    assert status == 404
    assert '<a href="/deployments">' in text


async def test_programs_get_errors_as_ever(cloud: Cloud) -> None:
    for path in ("/nowhere", "/api/v1/nowhere"):
        async with cloud.http.get(path) as answer:
            assert (answer.status, answer.content_type) == (404, "application/json")


async def test_another_organizations_deployment_does_not_exist(cloud: Cloud, store: Store) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    async with Cloud(cloud.server, store, "other", name="eve") as eve:
        await sign_in(eve)
        for path in ("/deployments/echo", "/deployments/echo/logs", "/codespaces/echo"):
            assert (await look(eve, path))[0] == 404
            assert (await look(eve, f"{path}?organization=acme"))[0] == 404


async def test_an_operator_looks_at_another_organization(cloud: Cloud, store: Store) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    async with Cloud(cloud.server, store, "default", name="root", operator=True) as root:
        await sign_in(root)
        assert (await look(root, "/deployments/echo"))[0] == 404
        status, text, _ = await look(root, "/deployments/echo?organization=acme")
        assert status == 200
        assert 'data-acting="acme"' in text


@pytest.mark.parametrize("path", OPERATORS)
async def test_what_is_an_operators_is_no_link_and_no_page_for_others(
    cloud: Cloud, store: Store, path: str
) -> None:
    await sign_in(cloud)
    status, text, _ = await look(cloud, path)
    assert status == 403
    assert "operator" in text
    assert f'href="{path}"' not in (await look(cloud, "/"))[1]


async def test_who_only_calls_sees_no_deployments(cloud: Cloud, store: Store) -> None:
    role = MemberRole.ENDPOINT_USER
    async with Cloud(cloud.server, store, name="bob", role=role) as bob:
        await sign_in(bob)
        assert (await look(bob, "/deployments"))[0] == 403
        assert (await look(bob, "/api_tokens"))[0] == 200


async def test_a_sign_in_that_has_ended_leads_to_another(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    cloud.http.cookie_jar.update_cookies({"hotplate_sign_in": "over"}, cloud.server.make_url("/"))
    status, _, where = await look(cloud, "/costs")
    assert (status, where) == (303, "/login?next=%2Fcosts")
