"""Signing in by a browser, and a login that is approved there. No script runs here either."""

from __future__ import annotations

import re

import pytest

from hotplate.platform.api.bentocloud.auth import COOKIE
from hotplate.platform.store.parts import Store
from hotplate.serving.gateway.http1.fields import SIGN_IN
from tests.support.control_plane.cloud import Cloud, Refused

NOBODY: dict[str, str] = {}


async def sign_in(cloud: Cloud, **form: str) -> int:
    async with cloud.http.post("/login", data=form, allow_redirects=False) as answer:
        return answer.status


async def link(cloud: Cloud) -> str:
    url: str = (await cloud.call("POST", "/api/v1/hotplate/users/ada/link", {}))["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?link=[-_\w]+", url)
    return url.partition("link=")[2]


async def test_a_token_signs_in_and_its_end_signs_out(cloud: Cloud, store: Store) -> None:
    cloud.http.headers.clear()
    async with cloud.http.post(
        "/login", data={"token": cloud.token}, allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Max-Age=43200"))
    assert "Secure" not in cookie
    assert (await cloud.call("GET", "/api/v1/auth/current"))["name"] == "ada"
    (token,) = store.tokens.tokens(cloud.user.organization.id)
    store.tokens.revoke_token(cloud.user.organization.id, token.uid)
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/auth/current")


async def test_a_change_with_a_sign_in_needs_our_origin(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    assert await sign_in(cloud, token=cloud.token) == 303
    body = {"name": "web", "scopes": ["endpoint"]}
    with pytest.raises(Refused, match=r"403.*needs the header Origin"):
        await cloud.call("POST", "/api/v1/api_tokens", body)
    cloud.http.headers["Origin"] = "https://evil.example"
    with pytest.raises(Refused, match=r"403.*may not call this"):
        await cloud.call("POST", "/api/v1/api_tokens", body)
    cloud.http.headers["Origin"] = str(cloud.server.make_url("/")).rstrip("/")
    await cloud.call("POST", "/api/v1/api_tokens", body)


async def test_a_link_signs_in_once_and_only_when_its_button_is_used(cloud: Cloud) -> None:
    secret = await link(cloud)
    cloud.http.headers.clear()
    for _ in range(2):  # chat programs look ahead
        async with cloud.http.get(f"/login?link={secret}") as page:
            assert f'value="{secret}"' in await page.text()
    assert await sign_in(cloud, link=secret) == 303
    assert (await cloud.call("GET", "/api/v1/auth/current"))["name"] == "ada"
    assert await sign_in(cloud, link=secret) == 401


async def test_who_signs_out_has_a_cookie_that_is_worth_nothing(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    await sign_in(cloud, token=cloud.token)
    (cookie,) = cloud.http.cookie_jar
    origin = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
    async with cloud.http.post("/logout", headers=origin) as answer:
        assert answer.status == 200
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/auth/current")
    cloud.http.headers["Cookie"] = f"{cookie.key}={cookie.value}"
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/auth/current")


@pytest.mark.parametrize("path", ["/api_tokens", "/api-token"])
async def test_a_login_is_approved_by_who_is_signed_in(cloud: Cloud, path: str) -> None:
    cloud.http.headers.clear()
    code = (await cloud.call("GET", "/api/v1/auth/code"))["code"]
    collect = f"/api/v1/auth/token?code={code}"
    with pytest.raises(Refused, match=r"409.*waits to be approved"):
        await cloud.call("GET", collect)
    async with cloud.http.get(f"{path}?code={code}", allow_redirects=False) as answer:
        assert answer.status == 303
        where = answer.headers["Location"]
        assert where.startswith("/login?next=%2Fapi")
    await sign_in(cloud, token=cloud.token)
    async with cloud.http.get(f"{path}?code={code}") as page:
        text = await page.text()
        assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert "Approve" in text
    assert "<script" not in text
    origin = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
    form = {"code": code, "answer": "approve"}
    async with cloud.http.post(path, data=form, headers=origin) as answer:
        assert "The login is approved" in await answer.text()
    cloud.http.cookie_jar.clear()
    token = (await cloud.call("GET", collect))["token"]
    cloud.http.headers["X-YATAI-API-TOKEN"] = token
    assert (await cloud.call("GET", "/api/v1/auth/current"))["name"] == "ada"
    with pytest.raises(Refused, match=r"401.*used before"):
        await cloud.call("GET", collect)


async def test_a_login_that_is_denied_gets_no_token(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    code = (await cloud.call("GET", "/api/v1/auth/code"))["code"]
    await sign_in(cloud, token=cloud.token)
    origin = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
    for answer, status in (("deny", 200), ("approve", 401)):
        form = {"code": code, "answer": answer}
        async with cloud.http.post("/api_tokens", data=form, headers=origin) as page:
            assert page.status == status
    with pytest.raises(Refused, match=r"403.*denied"):
        await cloud.call("GET", f"/api/v1/auth/token?code={code}")


@pytest.mark.parametrize("then", ["https://evil.example", "//evil.example", "/\\evil.example", "x"])
async def test_a_sign_in_leads_to_our_own_pages_only(cloud: Cloud, then: str) -> None:
    cloud.http.headers.clear()
    form = {"token": cloud.token, "next": then}
    async with cloud.http.post("/login", data=form, allow_redirects=False) as answer:
        assert answer.headers["Location"] == "/"


async def test_a_token_for_callers_signs_nobody_in(cloud: Cloud, store: Store) -> None:
    token = store.tokens.add_token(cloud.user, "calls", scopes=["endpoint"])
    cloud.http.headers.clear()
    assert await sign_in(cloud, token=token) == 403


def test_gateways_know_the_cookie_by_its_name() -> None:
    assert COOKIE.encode() == SIGN_IN
