"""Stores, servers and a fake controller for the control plane's tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sqlalchemy import create_engine, make_url, text

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.quick_store import QuickStore

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a folder: these tests commit thousands of times, and each
    commit waits for its disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="hotplate-test-", dir=MEMORY) as folder:
        yield Path(folder)


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
    server: str = request.getfixturevalue("postgresql")
    name = f"test_{uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(server).set(drivername="postgresql", database=name).render_as_string(False)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A PostgreSQL server of our own on a Unix socket; the URL of its first database."""
    if shutil.which("initdb") is None:
        pytest.skip("PostgreSQL is not installed here (no initdb)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed here (pip install hotplate[postgresql])")
    # The server refuses to run as root, and its user must reach the folder: not pytest's own.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        run = partial(subprocess.run, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        run(["initdb", "-D", f"{folder}/data", "-U", "hotplate", "-A", "trust", "--no-sync"])
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        control = ["pg_ctl", "-D", f"{folder}/data", "-w"]
        run([*control, "-o", options, "-l", f"{folder}/log", "start"])
        yield f"postgresql+psycopg://hotplate@/postgres?host={folder}"
        run([*control, "-m", "immediate", "stop"])
