"""Sign-ins, links and codes that are used from elsewhere, too late, or twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from sqlalchemy import update

from hotplate.cache.store.blobs import BlobStore
from hotplate.machine.access.own_hosts import OwnHosts
from hotplate.platform.api.bentocloud.auth import COOKIE
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.settings import PlatformSettings
from hotplate.platform.store.audit import AuditFilter
from hotplate.platform.store.parts import Store
from hotplate.platform.store.tables import LoginCodeRow, SignInRow
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import until

PORT = "PORT"
"""Stands for the API's in an `Origin`."""


def end_all(store: Store) -> None:
    """What was made ends now."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with store.database.session() as session:
        for table in (SignInRow, LoginCodeRow):
            session.execute(update(table).values(expires_at=past))


async def post(cloud: Cloud, path: str, form: dict[str, str], **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with cloud.http.post(path, data=form, headers=named, allow_redirects=False) as answer:
        return answer.status


async def signed_in(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    assert await post(cloud, "/login", {"token": cloud.token}) == 303


async def link(cloud: Cloud) -> str:
    url: str = (await cloud.call("POST", "/api/v1/hotplate/users/ada/link", {}))["url"]
    return url.partition("link=")[2]


@asynccontextmanager
async def behind(
    store: Store, blobs: BlobStore, controller: FakeController, **settings: Any
) -> AsyncIterator[Cloud]:
    """Somebody who calls an API that the world reaches as these settings say."""
    named = PlatformSettings(**settings)
    shown = ApiSettings(
        own=OwnHosts("127.0.0.1", named.own_hosts),
        public_url=named.public_url,
        trusted_proxies=named.trusted_proxies,
    )
    app = make_app(store, blobs, controller, shown)
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        yield cloud


def hidden(headers: dict[str, str], port: int) -> dict[str, str]:
    return {name: value.replace(PORT, str(port)) for name, value in headers.items()}


FOREIGN: list[dict[str, str]] = [
    {},
    {"Origin": "null"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": f"http://localhost:{PORT}"},
    {"Origin": f"http://127.0.0.1.evil.example:{PORT}"},
    {"Origin": f"http://evil.example@127.0.0.1:{PORT}"},
    {"Origin": "file://"},
    {"Origin": ""},
    {"Referer": f"http://127.0.0.1:{PORT}/login"},
]


@pytest.mark.parametrize("page", FOREIGN, ids=str)
async def test_nothing_is_changed_for_a_page_that_is_not_ours(
    cloud: Cloud, page: dict[str, str]
) -> None:
    await signed_in(cloud)
    given = hidden(page, cloud.server.port or 0)
    body = {"name": "web", "scopes": ["endpoint"]}
    async with cloud.http.post("/api/v1/api_tokens", json=body, headers=given) as answer:
        assert answer.status == 403
    code = (await cloud.call("GET", "/api/v1/auth/code"))["code"]
    form = {"code": code, "answer": "approve"}
    async with cloud.http.post("/api_tokens", data=form, headers=given) as answer:
        assert answer.status == 403
    async with cloud.http.post("/logout", headers=given) as answer:
        assert answer.status == 403
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await cloud.http.ws_connect("/ws/v1/clusters/default/tail", headers=given)
    assert refused.value.status == 403
    with pytest.raises(Refused, match=r"409.*waits to be approved"):
        await cloud.call("GET", f"/api/v1/auth/token?code={code}")


@pytest.mark.parametrize("page", [page for page in FOREIGN if page.get("Origin")], ids=str)
async def test_a_link_that_another_page_uses_stays_good(cloud: Cloud, page: dict[str, str]) -> None:
    secret = await link(cloud)
    given = hidden(page, cloud.server.port or 0)
    cloud.http.headers.clear()
    async with cloud.http.post(
        "/login", data={"link": secret}, headers=given, allow_redirects=False
    ) as answer:
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
    assert await post(cloud, "/login", {"link": secret}) == 303


@pytest.mark.parametrize(
    ("public_url", "host", "origin", "status"),
    [
        ("https://hot.example", "hot.example", "https://hot.example", 200),
        ("https://hot.example", "127.0.0.1", "https://hot.example", 200),
        ("https://hot.example", "hot.example", "http://hot.example", 403),
        ("https://hot.example", "127.0.0.1", "http://hot.example", 403),
        ("https://hot.example", "hot.example", "https://hot.example:8443", 403),
        ("https://hot.example", "hot.example", "https://other.example", 403),
        ("https://hot.example:8443", "hot.example:8443", "https://hot.example:8443", 200),
        ("https://hot.example:8443", "127.0.0.1", "https://hot.example:8443", 200),
        ("https://hot.example:8443", "127.0.0.1", "https://hot.example", 403),
        # Another public_url than before: the pages of the old one are nobody's.
        ("https://new.example", "127.0.0.1", "https://hot.example", 403),
        ("https://new.example", "127.0.0.1:80", "http://127.0.0.1:80", 200),
    ],
)
async def test_behind_a_proxy_the_origin_is_the_public_one(
    store: Store,
    blobs: BlobStore,
    controller: FakeController,
    public_url: str,
    host: str,
    origin: str,
    status: int,
) -> None:
    async with behind(store, blobs, controller, public_url=public_url) as cloud:
        cloud.http.headers.clear()
        async with cloud.http.post(
            "/login", data={"token": cloud.token}, allow_redirects=False
        ) as answer:
            assert "Secure" in answer.headers["Set-Cookie"]
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        cloud.http.cookie_jar.clear()
        given = {"Cookie": cookie, "Host": host, "Origin": origin}
        body = {"name": "web", "scopes": ["endpoint"]}
        async with cloud.http.post("/api/v1/api_tokens", json=body, headers=given) as answer:
            assert answer.status == status


async def test_a_trusted_proxy_says_that_the_world_comes_by_https(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    proxies = {"trusted_proxies": ("127.0.0.1",), "hosts": ("hot.example",)}
    async with behind(store, blobs, controller, **proxies) as cloud:
        await signed_in(cloud)
        body = {"name": "web", "scopes": ["endpoint"]}
        through = {"Host": "hot.example", "X-Forwarded-Proto": "https"}
        (cookie,) = cloud.http.cookie_jar
        through["Cookie"] = f"{cookie.key}={cookie.value}"
        for origin, status in (("http://hot.example", 403), ("https://hot.example", 200)):
            given = through | {"Origin": origin}
            async with cloud.http.post("/api/v1/api_tokens", json=body, headers=given) as answer:
                assert answer.status == status


async def test_what_comes_too_late_opens_nothing(cloud: Cloud, store: Store) -> None:
    secret, code = await link(cloud), (await cloud.call("GET", "/api/v1/auth/code"))["code"]
    await signed_in(cloud)
    ours = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
    end_all(store)
    with pytest.raises(Refused, match=r"401.*has expired; sign in again"):
        await cloud.call("GET", "/api/v1/auth/current")
    assert await post(cloud, "/login", {"link": secret}) == 401
    with pytest.raises(Refused, match=r"401.*has expired"):
        await cloud.call("GET", f"/api/v1/auth/token?code={code}")
    assert await post(cloud, "/login", {"token": cloud.token}) == 303
    assert await post(cloud, "/api_tokens", {"code": code, "answer": "approve"}, **ours) == 401
    async with cloud.http.get(f"/api_tokens?code={code}") as page:
        assert page.status == 404


async def test_of_two_sign_ins_in_one_request_neither_counts(cloud: Cloud) -> None:
    """A page of another port of this host may put its own beside ours."""
    await signed_in(cloud)
    (cookie,) = cloud.http.cookie_jar
    cloud.http.cookie_jar.clear()
    mine = f"{cookie.key}={cookie.value}"
    for given, status in ((mine, 200), (f"a=1; {mine}", 200), (f"{cookie.key}=x; {mine}", 401)):
        headers = {"Cookie": given}
        async with cloud.http.get("/api/v1/auth/current", headers=headers) as answer:
            assert answer.status == status


async def test_a_wrong_sign_in_counts_as_one_try(cloud: Cloud) -> None:
    ours = {"Origin": str(cloud.server.make_url("/")).rstrip("/")}
    cloud.http.headers.clear()
    form = {"code": "x", "answer": "approve"}
    for _ in range(12):  # without any, nothing was guessed
        assert await post(cloud, "/api_tokens", form, **ours) == 401
    for _ in range(10):
        assert await post(cloud, "/api_tokens", form, **ours, Cookie=f"{COOKIE}=x") == 401
    headers = ours | {"Cookie": f"{COOKIE}=x"}
    async with cloud.http.post("/api_tokens", data=form, headers=headers) as page:
        assert page.status == 429
        assert 0 < int(page.headers["Retry-After"]) <= 60


async def test_each_refusal_is_named_by_what_was_tried(cloud: Cloud, store: Store) -> None:
    calls = store.tokens.add_token(cloud.user, "calls", scopes=["endpoint"])
    cloud.http.headers.clear()
    wrong = {"X-YATAI-API-TOKEN": "wrong"}
    for path in ("/api/v1/auth/current", "/api/v1/bentos"):
        async with cloud.http.get(path, headers=wrong) as answer:
            assert answer.status == 401
    async with cloud.http.get("/api/v1/bentos", headers={"X-YATAI-API-TOKEN": calls}) as answer:
        assert answer.status == 403
    assert await post(cloud, "/login", {"token": calls}) == 403

    async def kept() -> bool:
        found, _ = await store.run(store.audit.page, AuditFilter(), 100)
        refused = {(line.action, line.object) for line in found if line.outcome == "refused"}
        return refused == {
            ("login.refused", "GET /api/v1/auth/current"),
            ("token.refused", "GET /api/v1/bentos"),
            ("access.refused", "GET /api/v1/bentos"),
        }

    await until(kept)
