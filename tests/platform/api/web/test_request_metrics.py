"""What is counted of the API's requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.request_metrics import RequestMetrics
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

ONE = "/api/v1/hotplate/deployments/{name}"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def cloud(
    store: Store, blobs: BlobStore, controller: FakeController, registry: CollectorRegistry
) -> AsyncIterator[Cloud]:
    app = make_app(store, blobs, controller, ApiSettings(), metrics=RequestMetrics(registry))
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        yield cloud


async def test_routes_are_patterns_and_never_what_was_asked_for(
    cloud: Cloud, registry: CollectorRegistry
) -> None:
    for path in ("a", "b", "c<script>"):
        await cloud.http.get(f"/api/v1/hotplate/deployments/{path}")
    await cloud.http.get("/api/v1/hotplate/deployments")
    await cloud.http.get("/made/up")
    await cloud.http.request("PROPFIND", "/made/up")
    await cloud.http.post("/api/v1/hotplate/deployments/a")

    def counted(method: str, route: str, status: str) -> float | None:
        labels = {"method": method, "route": route, "status": status}
        return registry.get_sample_value("hotplate_api_requests_total", labels)

    assert counted("GET", ONE, "404") == 3
    assert counted("GET", "/api/v1/hotplate/deployments", "200") == 1
    assert counted("GET", "none", "404") == 1
    assert counted("other", "none", "404") == 1
    assert counted("POST", "none", "405") == 1
    shown = {"method": "GET", "route": ONE}
    assert registry.get_sample_value("hotplate_api_request_seconds_count", shown) == 3
    for family in registry.collect():
        assert family.documentation, "each has its HELP"
        assert not any("script" in str(sample.labels) for sample in family.samples)


async def test_wrong_tries_are_counted(cloud: Cloud, registry: CollectorRegistry) -> None:
    async with ClientSession(cloud.url, headers={"X-YATAI-API-TOKEN": "made up"}) as http:
        await http.get("/api/v1/auth/current")
        await http.post(
            "/login", data={"token": "made up"}, headers={"Origin": cloud.url.rstrip("/")}
        )
    async with ClientSession(cloud.url) as http:
        await http.get("/api/v1/auth/current")
    assert registry.get_sample_value("hotplate_api_refused_logins_total") == 2
