from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from hotplate.platform.api.bentocloud.auth import answer_errors
from hotplate.platform.store.parts import Store
from hotplate.platform.store.tokens import token_digest
from tests.support.control_plane.cloud import Cloud, Refused


async def test_a_good_token_says_who_and_for_whom(cloud: Cloud) -> None:
    user = await cloud.call("GET", "/api/v1/auth/current")
    assert (user["name"], user["email"], user["first_name"]) == ("ada", "ada@example.com", "")
    organization = await cloud.call("GET", "/api/v1/current_org")
    assert (organization["name"], organization["labels"]) == ("acme", [])


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_call_without_a_good_token_is_unauthorized(cloud: Cloud, token: str) -> None:
    cloud.http.headers["X-YATAI-API-TOKEN"] = token
    with pytest.raises(Refused) as refused:
        await cloud.call("GET", "/api/v1/auth/current")
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")


async def test_an_expired_token_is_unauthorized(cloud: Cloud) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    cloud.store.tokens.add_token(cloud.user, "old", "old-secret", expires_at=yesterday)
    cloud.http.headers["X-YATAI-API-TOKEN"] = "old-secret"
    with pytest.raises(Refused, match="401"):
        await cloud.call("GET", "/api/v1/auth/current")


async def test_a_token_for_callers_of_deployments_is_forbidden(cloud: Cloud) -> None:
    cloud.store.tokens.add_token(cloud.user, "callers", "call", scopes=["endpoint"])
    cloud.http.headers["X-YATAI-API-TOKEN"] = "call"
    for method, path in (
        ("GET", "/api/v1/auth/current"),
        ("POST", "/api/v2/deployments"),
        ("GET", "/api/v1/api_tokens"),
    ):
        with pytest.raises(Refused, match=r"403.*callers of deployments"):
            await cloud.call(method, path)


async def test_a_token_without_the_api_scope_is_forbidden(cloud: Cloud) -> None:
    cloud.store.tokens.add_token(cloud.user, "narrow", "narrow", scopes=["metrics"])
    cloud.http.headers["X-YATAI-API-TOKEN"] = "narrow"
    with pytest.raises(Refused, match="403"):
        await cloud.call("GET", "/api/v1/auth/current")


async def test_health_needs_no_token(cloud: Cloud) -> None:
    cloud.http.headers.clear()
    healthy = {"status": "ok", "leader": False, "epoch": 0}  # nobody acts in this test
    assert await cloud.call("GET", "/healthz") == healthy


async def test_an_unknown_path_is_a_json_404(cloud: Cloud) -> None:
    with pytest.raises(Refused) as refused:
        await cloud.call("GET", "/api/v1/no_such_thing")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


async def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(
    cloud: Cloud,
) -> None:
    async with cloud.http.delete("/api/v1/org_secrets") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD,POST")


async def test_a_bug_is_a_plain_500() -> None:
    async def broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError("the secret inside")

    app = web.Application(middlewares=[answer_errors])
    app.router.add_get("/", broken)
    async with (
        TestServer(app) as server,
        ClientSession() as session,
        session.get(server.make_url("/")) as response,
    ):
        text = await response.text()
    assert response.status == 500
    assert "secret" not in text
    assert "x-trace-id" not in response.headers


@pytest.mark.sqlite
def test_of_a_token_only_its_digest_is_stored(store: Store, tmp_path: Path) -> None:
    secret = store.tokens.add_token(store.identities.ensure_user("acme", "ada", ""), "laptop")
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("hotplate.db*"))
    assert token_digest(secret).encode() in kept
    assert secret.encode() not in kept
