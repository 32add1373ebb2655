"""Where a model's chunks are, by our own route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from tests.support.control_plane.cloud import MODEL_MANIFEST, Cloud, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController

ABOUT = "name: numbers\nversion: v1\n"
ROOT = "/api/v1/hotplate/models"


def held(name: str, kind: str = "tree", **tiers: int) -> Mapping[str, Any]:
    return {"name": name, "kind": kind, "memory_bytes": 0, "disk_bytes": 0, **tiers}


@pytest.mark.parametrize("where", ["pushed", "at its hub"])
async def test_each_node_says_what_it_has_of_a_model(
    store: Store, blobs: BlobStore, controller: FakeController, where: str
) -> None:
    nodes: dict[str, Sequence[Mapping[str, Any]]] = {}

    async def holdings() -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return nodes

    app = make_app(store, blobs, controller, ApiSettings(), holdings)
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        name = "hf://org/name@abcdef0"
        files: list[tuple[str, int]] = []
        if where == "pushed":
            tar = tar_of({"weights": "w" * 1000, "model.yaml": ABOUT})
            await cloud.register("model", "numbers", "v1")
            one = f"{versions('model', 'numbers')}/v1"
            await cloud.call("PATCH", f"{one}/start_upload")
            await cloud.call("PUT", f"{one}/upload", data=tar)
            row = store.artifacts.latest(cloud.user.organization.id, Kind.MODEL, "numbers")
            assert row is not None
            name = row.files
            files = [("model.yaml", len(ABOUT)), ("weights", 1000)]
        else:
            hub = {"registry": "huggingface", "model_id": "org/name", "revision": "abcdef0"}
            await cloud.register("model", "numbers", "v1", MODEL_MANIFEST | {"metadata": hub})
        nodes["b"] = [held("other", memory_bytes=5), held(name, memory_bytes=7, disk_bytes=9)]
        nodes["a"] = [held("other", disk_bytes=3)]
        found = await cloud.call("GET", f"{ROOT}/numbers/v1")
        assert found["tag"] == "numbers:v1"
        assert [(one["path"], one["size_bytes"]) for one in found["files"]] == files
        assert found["used_by"] == []
        assert found["nodes"] == [
            {"name": "a", "memory_bytes": 0, "disk_bytes": 0},
            {"name": "b", "memory_bytes": 7, "disk_bytes": 9},
        ]
