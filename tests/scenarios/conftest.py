"""One platform, one laptop and one environment for all scenarios that a worker runs.

They end with the last of these, so that other tests have the machine for themselves. With `--engine
kubernetes` the platform is the release on the test cluster, and what is marked `one_machine` is
left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import pytest

from tests.cluster.installation import Installation
from tests.cluster.layout import Layout
from tests.cluster.organization import ClusterPlatform
from tests.cluster.release import Release
from tests.support.control_plane import postgresql
from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.built_once import built_once, environments_of
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform
from tests.support.end_to_end.rough_client import Bento, RoughClient
from tests.support.ports import free_port
from tests.support.services.bentos import KITCHEN, SLEEPY
from tests.support.services.hall import PAGE
from tests.support.services.public_services import PublicService, delete_all, deploy_all
from tests.support.services.shapes import SOURCES, Shapes, building

BUILT_WITHIN_S = 300.0
"""How long its environment may take to be built."""


@pytest.fixture(scope="session", autouse=True)
def databases(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of every platform that starts; in PostgreSQL with `--database postgresql`."""
    if request.config.getoption("--database") == "postgresql":
        server: str = request.getfixturevalue("postgresql_server")
        Platform.databases = partial(postgresql.database, server)
    yield
    Platform.databases = None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--engine") == "kubernetes":
        for mark in item.iter_markers("one_machine"):
            pytest.skip(f"one machine only: {mark.args[0]}")


@pytest.fixture(scope="package")
def platform(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyPlatform]:
    """A running platform, which leaves nothing behind."""
    on = on_a_cluster if request.config.getoption("--engine") == "kubernetes" else on_this_machine
    yield from on(tmp_path_factory)


def on_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyPlatform]:
    """An organization of its own in the release on the test cluster."""
    layout = Layout()
    if os.environ.get("KUBECONFIG", str(layout.kubeconfig)) != str(layout.kubeconfig):
        pytest.skip("the scenarios know no names and addresses of the cluster of KUBECONFIG")
    if not layout.kubeconfig.exists():
        pytest.skip("there is no cluster; run `make cluster-up`")
    release = Release.on(Installation(layout))
    if not release.is_there():
        list(release.install())
    organization = f"scenarios-{uuid.uuid4().hex[:6]}"
    platform = ClusterPlatform(release, organization, tmp_path_factory.mktemp("platform"))
    asyncio.run(platform.start())
    try:
        yield platform
    finally:
        asyncio.run(platform.stop())


def on_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyPlatform]:
    """It ends with Ctrl-C."""
    platform = Platform(tmp_path_factory.mktemp("platform") / "data")
    try:
        asyncio.run(platform.start())
        yield platform
        assert asyncio.run(platform.stop()) == 0
        assert platform.leftovers() == []
    finally:
        platform.destroy()


@pytest.fixture(scope="package")
def laptop(tmp_path_factory: pytest.TempPathFactory, platform: AnyPlatform) -> Laptop:
    """A laptop that is logged in to the platform."""
    return asyncio.run(Laptop.at(tmp_path_factory.mktemp("laptop"), platform))


@pytest.fixture
async def rough(platform: AnyPlatform) -> AsyncIterator[RoughClient]:
    """A client of the platform that sends what the bentoml client would not."""
    async with RoughClient(platform) as client:
        yield client


@pytest.fixture(scope="package")
def bento(laptop: Laptop, kitchen: str) -> Bento:
    """The kitchen's bento as files, to make others from."""
    name, _, version = kitchen.partition(":")
    return Bento.read(laptop.home / "bentos" / name / version)


@pytest.fixture
async def unharmed(platform: AnyPlatform) -> AsyncIterator[None]:
    """For what is refused or fails: no role may end over it, log a traceback, or stop answering."""
    async with platform.unharmed():
        yield


@pytest.fixture(scope="package")
def kitchen(platform: AnyPlatform, laptop: Laptop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tag of a bento whose service shows what happens to its requests.

    It is deployed as `sleeper`, so the environment of all the scenarios' bentos is there.
    """
    tag = asyncio.run(laptop.build("kitchen", KITCHEN))
    kept = environments_of(os.geteuid(), tmp_path_factory)
    known = (
        built_once(platform.data / "environments", kept)
        if isinstance(platform, Platform)
        else nullcontext()
    )
    sleeper = {"name": "sleeper", "bento": tag, "services": {"Kitchen": {"scaling": SLEEPY}}}
    with known:
        deploy = ("deploy", "--config-dict", json.dumps(sleeper), "--no-wait")
        asyncio.run(laptop.bentoml(*deploy))
        asyncio.run(platform.stands("sleeper", BUILT_WITHIN_S))
    return tag


@pytest.fixture
async def sleeper(platform: AnyPlatform, kitchen: str) -> str:
    """The URL of a deployment with one slot that sleeps after a second without requests."""
    return await platform.url_of("sleeper")


@pytest.fixture(scope="package")
def shapes(
    platform: AnyPlatform,
    laptop: Laptop,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Shapes:
    """Bentos of every shape, built while the kitchen is deployed, whose environment they have."""
    folder = tmp_path_factory.mktemp("shapes")
    made = Shapes(platform, laptop, folder, free_port(), free_port())
    for name, source in SOURCES.items():
        (folder / f"{name.lower()}.py").write_text(source.replace(PAGE, made.page))
    with ThreadPoolExecutor(1) as beside:
        built = beside.submit(asyncio.run, laptop.python(building(str(folder))))
        request.getfixturevalue("kitchen")
        built.result()
    return made


@pytest.fixture(scope="package")
def deployed_shapes(shapes: Shapes) -> dict[str, str]:
    """The URLs of a deployment of each, by its name; they are made side by side."""
    return asyncio.run(shapes.deploy_all())


@pytest.fixture(scope="package")
def hall(deployed_shapes: dict[str, str]) -> str:
    """The URL of a chain of three services; the first has nearly every shape."""
    return deployed_shapes["hall"]


@pytest.fixture(scope="package")
def tasks(deployed_shapes: dict[str, str]) -> str:
    """The URL of a service with tasks, which do no harm when they run twice."""
    return deployed_shapes["tasks"]


@pytest.fixture(scope="package")
def command(deployed_shapes: dict[str, str]) -> str:
    """The URL of a service that is a program of its own."""
    return deployed_shapes["command"]


@pytest.fixture(scope="package")
def prefixed(deployed_shapes: dict[str, str]) -> str:
    """The URL of a service below `/v1` that asks for a token, and sleeps when nobody calls."""
    return deployed_shapes["prefixed"]


@pytest.fixture(scope="module")
def public_services(
    request: pytest.FixtureRequest, platform: AnyPlatform, laptop: Laptop, kitchen: str
) -> Iterator[dict[str, PublicService]]:
    """Services that we did not write, by name: those of the test module's `ANSWERS`.

    kitchen: their environment is there.
    """
    names = request.module.ANSWERS
    try:
        yield asyncio.run(deploy_all(names, platform, laptop))
    finally:
        asyncio.run(delete_all(names, platform))
