"""Who sees which lines of the control plane's metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from prometheus_client import CollectorRegistry, Gauge, Histogram

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.internal.metrics import MetricsRoutes
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import AUTH, make_app
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import MemberRole
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

CLUSTER = "cluster-secret"


def lines(registry: CollectorRegistry) -> None:
    replicas = Gauge("replicas", "Now", ["deployment", "service"], registry=registry)
    starts = Histogram("starts", "Seconds", ["deployment"], buckets=[1.0], registry=registry)
    for name in ("acme/chat", "acme-2/chat", "rival/acme", "rival/chat"):
        replicas.labels(name, "Chat").set(1)
        starts.labels(name).observe(0.5)
    Gauge("standbys", "Warm", ["environment"], registry=registry).labels("of-rival").set(1)
    Gauge("memory_bytes", "Of the process", registry=registry).set(5)


@pytest.fixture
async def server(
    store: Store, blobs: BlobStore, controller: FakeController
) -> AsyncIterator[BaseTestServer]:
    app = make_app(store, blobs, controller, ApiSettings())
    registry = CollectorRegistry()
    lines(registry)
    app.add_routes(
        MetricsRoutes(CLUSTER, app[AUTH].admit_bearer, registry, open_to_all=False).routes()
    )
    async with TestServer(app) as server:
        yield server


async def read(cloud: Cloud, headers: dict[str, str]) -> tuple[int, str]:
    cloud.http.headers.clear()
    async with cloud.http.get("/metrics", headers=headers) as answer:
        return answer.status, await answer.text()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("role", [MemberRole.ADMIN, MemberRole.DEVELOPER])
async def test_a_token_shows_the_lines_of_its_organization_and_nothing_else(
    server: BaseTestServer, store: Store, role: MemberRole
) -> None:
    async with Cloud(server, store, name="bob", role=role, scopes=["metrics"]) as bob:
        for headers in (bearer(bob.token), {"X-YATAI-API-TOKEN": bob.token}):
            status, text = await read(bob, headers)
            assert status == 200
            samples = [line for line in text.splitlines() if not line.startswith("#")]
            assert len(samples) == 1 + 5
            assert all('deployment="acme/chat"' in sample for sample in samples)
            assert "memory_bytes" not in text
            assert "standbys" not in text


async def test_an_operator_s_and_the_cluster_s_show_all(
    server: BaseTestServer, store: Store
) -> None:
    made = Cloud(server, store, "default", name="root", scopes=["metrics"], operator=True)
    async with made as root:
        for token in (root.token, CLUSTER):
            status, text = await read(root, bearer(token))
            assert status == 200
            assert all(name in text for name in ("acme/chat", "rival/chat", "standbys{", "memory_"))
        store.organizations.create("rival")
        _, text = await read(root, bearer(root.token) | {"X-Hotplate-Organization": "rival"})
        assert "rival/chat" in text
        assert "acme/chat" not in text


@pytest.mark.parametrize("scopes", [["api"], ["read_cluster"], ["endpoint"]])
async def test_no_other_token_and_nobody_without_one(
    server: BaseTestServer, store: Store, scopes: list[str]
) -> None:
    async with Cloud(server, store, scopes=scopes) as ada:
        status, text = await read(ada, bearer(ada.token))
        assert (status, "lacks the scope 'metrics'" in text) == (403, True)
        for headers in ({}, bearer("wrong"), bearer(""), {"Authorization": f"Basic {CLUSTER}"}):
            assert (await read(ada, headers))[0] == 401


async def test_of_a_member_who_is_only_a_caller_now_it_shows_nothing(
    server: BaseTestServer, store: Store
) -> None:
    made = Cloud(server, store, name="bob", role=MemberRole.ENDPOINT_USER, scopes=["metrics"])
    async with made as bob:
        status, text = await read(bob, bearer(bob.token))
        assert (status, "needs the role 'developer'" in text) == (403, True)


async def test_where_the_installation_says_so_everybody_reads_all(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    app: web.Application = make_app(store, blobs, controller, ApiSettings())
    registry = CollectorRegistry()
    lines(registry)
    routes = MetricsRoutes(CLUSTER, app[AUTH].admit_bearer, registry, open_to_all=True)
    app.add_routes(routes.routes())
    async with TestServer(app) as server, Cloud(server, store) as ada:
        status, text = await read(ada, {})
        assert (status, "rival/chat" in text) == (200, True)
