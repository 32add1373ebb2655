"""Stores, servers and a fake controller for the control plane's tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane import postgresql
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.quick_store import ELSEWHERE, QuickStore

MEMORY = Path("/dev/shm")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--database") != "sqlite" and item.get_closest_marker("sqlite"):
        pytest.skip("needs the file of a database of SQLite")


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """In memory where there is such a folder: these tests commit thousands of times, and each
    commit waits for its disk. Stores in it are PostgreSQL's with `--database postgresql`."""
    if request.config.getoption("--database") == "postgresql":
        ELSEWHERE.server = request.getfixturevalue("postgresql_server")
    if not os.access(MEMORY, os.W_OK):
        yield from _with_databases(tmp_path)
        return
    with tempfile.TemporaryDirectory(prefix="hotplate-test-", dir=MEMORY) as folder:
        yield from _with_databases(Path(folder))


def _with_databases(folder: Path) -> Iterator[Path]:
    ELSEWHERE.begin(folder)
    yield folder
    ELSEWHERE.end(folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = QuickStore(tmp_path / "hotplate.db")
    yield store
    store.close()


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/blobs")


@pytest.fixture
def controller(store: Store) -> FakeController:
    return FakeController(store)


@pytest.fixture
async def cloud(store: Store, blobs: BlobStore, controller: FakeController) -> AsyncIterator[Cloud]:
    """A served API with one user, logged in."""
    app = make_app(store, blobs, controller, ApiSettings())
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        yield cloud
        await controller.settled()


@pytest.fixture(params=[True, False], ids=["handler cancelled", "handler goes on"])
async def port(
    request: pytest.FixtureRequest, store: Store, blobs: BlobStore, controller: FakeController
) -> AsyncIterator[int]:
    """The same API again, on a server with either idea of what happens when a caller leaves."""
    app = make_app(store, blobs, controller, ApiSettings())
    runner = web.AppRunner(app, handler_cancellation=request.param)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hotplate.db"
    return postgresql.database(request.getfixturevalue("postgresql_server"))
