"""A push says nothing of what other organizations have: it costs the same calls, answers and room
whether or not they have the bytes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import BaseTestServer, TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import Cloud, put, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController

MODEL = f"{versions('model', 'bert')}/1"
BENTO = f"{versions('bento', 'echo')}/v1"
WEIGHTS = [random.Random(seed).randbytes(300_000) for seed in (1, 2)]
"""Two files of one size; other organizations have the first."""
VARIES = re.compile(
    r'"(uid|id|created_at|updated_at|upload_started_at|upload_finished_at|upload_id|'
    r'presigned_upload_url|presigned_download_url)": "[^"]*"'
)


@pytest.fixture
async def server(
    store: Store, blobs: BlobStore, controller: FakeController
) -> AsyncIterator[BaseTestServer]:
    async with TestServer(make_app(store, blobs, controller, ApiSettings())) as made:
        yield made


class Listening(Cloud):
    """It keeps all that it was answered, but for names and times."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard: list[str] = []

    async def call(self, method: str, path: str, *args: Any, **options: Any) -> Any:
        answer = await super().call(method, path, *args, **options)
        said = VARIES.sub("", json.dumps(answer))
        self.heard.append(f"{method} {path} {said}")
        return answer


async def push_model(cloud: Cloud, weights: bytes) -> None:
    await cloud.register("model", "bert", "1")
    described = "name: bert\nversion: '1'\n"
    tar = tar_of({"model.yaml": described, "weights.safetensors": weights})
    await cloud.push_parts("bert", "1", [tar[:100_000], tar[100_000:]])
    await cloud.call("GET", MODEL)
    await cloud.call("GET", "/api/v1/models")


async def push_bento(cloud: Cloud, content: bytes) -> None:
    await cloud.register("bento", "echo", "v1")
    await cloud.call("PATCH", f"{BENTO}/start_upload")
    files: dict[str, str | bytes] = {"bento.yaml": "name: echo\nversion: v1\n", "src/data": content}
    await cloud.call("PUT", f"{BENTO}/upload", data=tar_of(files))
    await cloud.call("GET", BENTO)


async def push_by_link(cloud: Cloud, content: bytes) -> None:
    await cloud.register("bento", "echo", "v1")
    await cloud.call("PATCH", f"{BENTO}/start_upload")
    signed = await cloud.call("PATCH", f"{BENTO}/presign_upload_url")
    files: dict[str, str | bytes] = {"bento.yaml": "name: echo\nversion: v1\n", "src/data": content}
    await put(signed["presigned_upload_url"], tar_of(files))
    await cloud.call("PATCH", f"{BENTO}/finish_upload", {"status": "success", "reason": ""})


@pytest.mark.parametrize("push", [push_model, push_bento])
async def test_the_calls_answers_and_room_of_a_push_are_the_same(
    server: BaseTestServer, store: Store, blobs: BlobStore, push: Any
) -> None:
    async with Cloud(server, store, "rival", name="eve") as rival:
        await push(rival, WEIGHTS[0])
    found = []
    for organization, weights in (("acme", WEIGHTS[0]), ("zeta", WEIGHTS[1])):
        before = blobs.used_bytes()
        async with Listening(server, store, organization, name=f"of-{organization}") as cloud:
            await push(cloud, weights)
        took_bytes = blobs.used_bytes() - before
        said = "\n".join(cloud.heard).replace(organization, "us")
        found.append((took_bytes, said))
    (mine_bytes, mine), (other_bytes, other) = found
    assert mine == other
    assert mine_bytes == other_bytes
    assert mine_bytes > len(WEIGHTS[0])


async def test_a_bento_by_a_signed_url_too(
    server: BaseTestServer, store: Store, blobs: BlobStore
) -> None:
    async with Listening(server, store, "rival", name="eve") as rival:
        await push_by_link(rival, WEIGHTS[0])
    took = []
    for organization, content in (("acme", WEIGHTS[0]), ("zeta", WEIGHTS[1])):
        before = blobs.used_bytes()
        async with Listening(server, store, organization, name=f"of-{organization}") as cloud:
            await push_by_link(cloud, content)
        took.append(blobs.used_bytes() - before)
    assert took[0] == took[1]
