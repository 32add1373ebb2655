"""Deployments that share an address: each has a host name, and no two have the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import BaseTestServer, TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.spec.deployment_host import deployment_host
from hotplate.platform.store.deployment_ports import count_up
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, Refused
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.quick_store import QuickStore

URL = "https://*.models.example.com:8443"
OTHER_TENANT = "secretive"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = QuickStore(tmp_path / "hotplate.db", count_up, share_address=True)
    yield store
    store.close()


@pytest.fixture
async def server(store: Store, blobs: BlobStore) -> AsyncIterator[BaseTestServer]:
    controller = FakeController(store)
    app = make_app(store, blobs, controller, ApiSettings(deployments_url=URL))
    async with TestServer(app) as server:
        yield server
        await controller.settled()


@pytest.fixture
async def default(server: BaseTestServer, store: Store) -> AsyncIterator[Cloud]:
    async with Cloud(server, store, "default", name="ada") as cloud:
        await cloud.push_bento()
        yield cloud


@pytest.fixture
async def secretive(server: BaseTestServer, store: Store) -> AsyncIterator[Cloud]:
    async with Cloud(server, store, OTHER_TENANT, name="eve") as cloud:
        await cloud.push_bento()
        yield cloud


async def deploy(cloud: Cloud, name: str) -> Any:
    return await cloud.call("POST", "/api/v2/deployments", {"name": name, "bento": "echo:v1"})


@pytest.mark.parametrize("name", ["hello", "h" * 63])
async def test_urls_have_the_host_name_in_the_place_of_the_star(
    default: Cloud, secretive: Cloud, name: str
) -> None:
    assert (await deploy(default, name))["urls"] == [URL.replace("*", name)]
    made = await deploy(secretive, name)
    host = deployment_host(name, OTHER_TENANT)
    assert made["urls"] == [URL.replace("*", host)]
    assert len(host) <= 63 and host != name
    (listed,) = (await secretive.call("GET", "/api/v2/deployments"))["items"]
    assert listed["urls"] == made["urls"]


@pytest.mark.parametrize(
    "name",
    [f"hello--{OTHER_TENANT}", deployment_host("hello", OTHER_TENANT)],
    ids=["the same text", "what is made of it"],
)
async def test_a_host_name_that_is_taken_is_refused_and_tells_nothing_of_whose_it_is(
    default: Cloud, secretive: Cloud, name: str
) -> None:
    await deploy(secretive, "hello")
    with pytest.raises(Refused) as refused:
        await deploy(default, name)
    assert (refused.value.status, refused.value.code) == (409, "conflict")
    host = deployment_host("hello", OTHER_TENANT)
    said = refused.value.message
    assert said == (
        f"deployment {name!r}: the host name {host!r} that it would have is taken; choose "
        "another name"
    )
    assert OTHER_TENANT not in said.replace(name, "").replace(host, "")
    assert "eve" not in said
    await secretive.call("DELETE", "/api/v2/deployments/hello")
    await deploy(default, name)
    with pytest.raises(Refused, match="409"):
        await deploy(secretive, "hello")


async def test_names_that_only_look_alike_are_good(default: Cloud, secretive: Cloud) -> None:
    for cloud in (default, secretive):
        for name in ("hello", "hello-1", "hello--1"):
            await deploy(cloud, name)
    shown = [
        url
        for cloud in (default, secretive)
        for item in (await cloud.call("GET", "/api/v2/deployments"))["items"]
        for url in item["urls"]
    ]
    assert len(set(shown)) == len(shown) == 6


async def test_the_name_by_which_a_caller_reached_us_changes_no_url(default: Cloud) -> None:
    await deploy(default, "hello")
    headers = {"Host": "127.0.0.1:7070"}
    async with default.http.get("/api/v2/deployments/hello", headers=headers) as answer:
        assert (await answer.json())["urls"] == [URL.replace("*", "hello")]
