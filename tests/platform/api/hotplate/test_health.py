"""Whether a control plane lives, and whether it serves: what a kubelet asks of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from sqlalchemy import text

from hotplate.platform.api.bentocloud.auth import answer_errors
from hotplate.platform.api.hotplate.health import HealthRoutes
from hotplate.platform.store.parts import Store


@asynccontextmanager
async def asked(
    store: Store, ready: Callable[[], bool], *, alone: bool
) -> AsyncIterator[Callable[[str], Awaitable[tuple[int, str]]]]:
    app = web.Application(middlewares=[answer_errors])
    app.add_routes(HealthRoutes(store, ready, lambda: 3, alone=alone).routes())
    async with TestClient(TestServer(app)) as client:

        async def ask(path: str) -> tuple[int, str]:
            async with client.get(path) as answer:
                return answer.status, (await answer.json()).get("status", "")

        yield ask


@pytest.mark.parametrize(
    ("alone", "healthy"), [(False, (503, "starting")), (True, (200, "starting"))]
)
async def test_without_a_gateway_a_cluster_lets_it_live(
    store: Store, alone: bool, healthy: tuple[int, str]
) -> None:
    """`hotplate up` takes a control plane that does not get to serve for one that hangs."""
    async with asked(store, lambda: False, alone=alone) as ask:
        assert await ask("/healthz") == healthy
        assert await ask("/readyz") == (200, "ok")
    async with asked(store, lambda: True, alone=alone) as ask:
        assert await ask("/healthz") == (200, "ok")


@pytest.mark.sqlite
@pytest.mark.parametrize(("alone", "status"), [(False, 503), (True, 200)])
async def test_a_database_that_fails_ends_no_process_of_a_cluster(
    store: Store, alone: bool, status: int
) -> None:
    with store.database.session() as session:
        session.execute(text("DROP TABLE learnt"))
    async with asked(store, lambda: True, alone=alone) as ask:
        assert (await ask("/healthz"))[0] == status
        assert (await ask("/readyz"))[0] == 503
