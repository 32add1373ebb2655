"""A large model on a slow store: its upload is unpacked for longer than the client waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import until

MODEL = f"{versions('model', 'bert')}/1"
TAR = tar_of({"model.yaml": "name: bert\nversion: '1'\n", "weights.safetensors": b"w" * 100})
SUCCESS = {"status": "success", "reason": ""}
WAIT_S = 0.1
LIMIT_S = 0.6
"""How long this client waits for a word of the server."""
TAKES_S = 2 * LIMIT_S


class SlowBlobs(BlobStore):
    """It takes its time to read parts."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads = 0

    def read_parts(self, upload: str, parts: Iterable[int]) -> Iterator[bytes]:
        self.reads += 1
        threading.Event().wait(TAKES_S)
        return super().read_parts(upload, parts)


@pytest.fixture
def blobs(tmp_path: Path) -> SlowBlobs:
    return SlowBlobs(f"file://{tmp_path}/blobs")


@pytest.fixture
async def cloud(store: Store, blobs: SlowBlobs, controller: FakeController) -> AsyncIterator[Cloud]:
    app = make_app(store, blobs, controller, ApiSettings(unpack_wait_s=WAIT_S))
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        await cloud.register("model", "bert", "1")
        yield cloud


@pytest.fixture
async def client(cloud: Cloud) -> AsyncIterator[httpx.AsyncClient]:
    """As the stock one is made, but less patient."""
    headers = {"X-YATAI-API-TOKEN": cloud.token}
    async with httpx.AsyncClient(
        base_url=cloud.url, headers=headers, timeout=LIMIT_S, trust_env=False
    ) as client:
        yield client


async def completed(cloud: Cloud, client: httpx.AsyncClient, tar: bytes = TAR) -> httpx.Response:
    upload_id, parts = await cloud.send_parts(MODEL, [tar])
    body = {"upload_id": upload_id, "parts": parts}
    return await client.patch(f"{MODEL}/complete_multipart_upload", json=body)


async def test_the_upload_s_answer_waits_for_longer_than_the_client_would_wait_for_a_word(
    cloud: Cloud, client: httpx.AsyncClient, blobs: SlowBlobs
) -> None:
    answer = await completed(cloud, client)
    assert answer.json()["upload_status"] == "success"
    finished = await client.patch(f"{MODEL}/finish_upload", json=SUCCESS)
    assert finished.json()["upload_status"] == "success"


async def test_who_pushes_again_meanwhile_finds_the_model_there_and_sends_nothing(
    cloud: Cloud, client: httpx.AsyncClient, blobs: SlowBlobs
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(completed(cloud, client))
        await until(lambda: blobs.reads > 0)
        found = group.create_task(client.get(MODEL))
    assert found.result().json()["upload_status"] == "success"
    assert blobs.reads == 1


async def test_an_upload_that_begins_meanwhile_is_one_of_its_own(
    cloud: Cloud, client: httpx.AsyncClient, blobs: SlowBlobs
) -> None:
    """With `--force`: what is being unpacked was one upload, what comes now is another."""

    async def again() -> Any:
        await client.patch(f"{MODEL}/start_upload")
        return await cloud.push_parts("bert", "1", [TAR])

    async with asyncio.TaskGroup() as group:
        first = group.create_task(completed(cloud, client))
        await until(lambda: blobs.reads > 0)
        second = group.create_task(again())
    assert first.result().json()["upload_status"] == "success"
    assert second.result()["upload_status"] == "success"
    assert blobs.reads == 2


@pytest.mark.parametrize("header", ["Via", "X-Forwarded-For"])
async def test_behind_a_proxy_the_answer_comes_in_time_and_says_that_it_goes_on(
    cloud: Cloud, client: httpx.AsyncClient, blobs: SlowBlobs, header: str
) -> None:
    client.headers[header] = "1.1 proxy"
    answer = await completed(cloud, client)
    assert answer.json()["upload_status"] == "uploading"
    await until(lambda: uploaded(cloud))


async def uploaded(cloud: Cloud) -> bool:
    return bool((await cloud.call("GET", MODEL))["upload_status"] == "success")


async def test_a_tar_that_is_refused_late_is_refused_with_its_reason(
    cloud: Cloud, client: httpx.AsyncClient
) -> None:
    answer = await completed(cloud, client, tar_of({"x": b"no model"}))
    assert answer.status_code == 400
    assert "no model.yaml at the top" in answer.text
