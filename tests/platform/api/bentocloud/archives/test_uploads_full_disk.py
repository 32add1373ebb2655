"""Uploads to a disk that is full, or fills up: a sentence for the client; the next try works."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from tests.support.control_plane.cloud import MODEL_MANIFEST, Cloud, Refused, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.quick_store import QuickStore
from tests.support.small_disk import MIB, fill, small_disk

BENTO = f"{versions('bento', 'echo')}/v1"
MODEL = f"{versions('model', 'bert')}/1"
TAR = tar_of(
    {
        "model.yaml": "name: bert\nversion: '1'\n",
        "weights.safetensors": random.Random(1).randbytes(3 * MIB),
    }
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", 20 * MIB) as folder:
        yield folder


@pytest.fixture
def blobs(disk: Path) -> BlobStore:
    return BlobStore(f"file://{disk}/blobs")


async def send(cloud: Cloud, parts: list[bytes]) -> Refused | None:
    """A model as the stock client sends it: it completes with the parts that were taken."""
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    try:
        upload_id, done = await cloud.send_parts(MODEL, parts)
    except Refused as refused:
        assert refused.status == 507
        upload_id = (await cloud.call("PATCH", f"{MODEL}/start_multipart_upload"))["upload_id"]
        done = [{"part_number": 1, "etag": "of the one part that was taken"}]
    body = {"upload_id": upload_id, "parts": done}
    try:
        await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", body)
    except Refused as refused:
        failed = {"status": "failed", "reason": refused.message}
        await cloud.call("PATCH", f"{MODEL}/finish_upload", failed)
        return refused
    return None


def cut(data: bytes) -> list[bytes]:
    return [data[start : start + MIB] for start in range(0, len(data), MIB)]


def files(disk: Path) -> list[Path]:
    return [path for path in (disk / "blobs").rglob("*") if path.is_file()]


async def test_a_bento_that_does_not_fit_is_refused_and_taken_when_it_does(
    cloud: Cloud, disk: Path
) -> None:
    await cloud.register("bento", "echo", "v1")
    filler = fill(disk)
    tar = tar_of({"bento.yaml": "name: echo\nversion: v1\n", "src/big": b"x" * 100_000})
    with pytest.raises(Refused, match=r"is full: .* free some space") as refused:
        await cloud.call("PUT", f"{BENTO}/upload", data=tar)
    assert (refused.value.status, refused.value.code) == (507, "no_space")
    bento = await cloud.call("GET", BENTO)
    assert bento["upload_status"] == "failed"
    assert bento["upload_finished_reason"] == refused.value.message
    assert files(disk) == []
    filler.unlink()
    await cloud.call("PUT", f"{BENTO}/upload", data=tar)
    assert (await cloud.call("GET", BENTO))["upload_status"] == "success"


async def test_a_model_that_cannot_fit_is_refused_before_it_is_sent(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1", {**MODEL_MANIFEST, "size_bytes": 10 * MIB})
    with pytest.raises(Refused, match=r"20 MiB more are needed and \d+ MiB are free") as refused:
        await cloud.call("PATCH", f"{MODEL}/start_upload")
    assert refused.value.status == 507


async def test_what_arrived_counts_when_an_upload_is_begun_again(cloud: Cloud, disk: Path) -> None:
    await cloud.register("model", "bert", "1", {**MODEL_MANIFEST, "size_bytes": 9 * MIB})
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    await cloud.send_parts(MODEL, cut(bytes(9 * MIB)))
    await cloud.call("PATCH", f"{MODEL}/start_upload")


async def test_a_client_whose_part_does_not_fit_is_told_so_at_the_end_too(
    cloud: Cloud, disk: Path
) -> None:
    await cloud.register("model", "bert", "1")
    filler = fill(disk, left_bytes=3 * MIB)
    refused = await send(cloud, cut(TAR))
    assert refused is not None
    assert refused.status == 507
    assert "free some space" in refused.message
    model = await cloud.call("GET", MODEL)
    assert (model["upload_status"], model["upload_finished_reason"]) == ("failed", refused.message)
    filler.unlink()
    assert await send(cloud, cut(TAR)) is None
    assert (await cloud.call("GET", MODEL))["upload_status"] == "success"


async def test_a_model_that_cannot_be_unpacked_makes_way_and_is_unpacked_when_there_is_room(
    cloud: Cloud, disk: Path
) -> None:
    manifest = {**MODEL_MANIFEST, "size_bytes": 3 * MIB}
    await cloud.register("model", "bert", "1", manifest)
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    upload_id, done = await cloud.send_parts(MODEL, cut(TAR))
    filler = fill(disk, left_bytes=2 * MIB)
    complete = {"upload_id": upload_id, "parts": done}
    with pytest.raises(Refused, match="free some space") as refused:
        await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", complete)
    assert refused.value.status == 507
    assert len(files(disk)) == len(cut(TAR)), "the parts wait for room"
    filler.unlink()
    await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", complete)
    assert (await cloud.call("GET", MODEL))["upload_status"] == "success"


async def test_what_a_client_gives_up_does_not_keep_a_disk_full(cloud: Cloud, disk: Path) -> None:
    await cloud.register("model", "bert", "1", {**MODEL_MANIFEST, "size_bytes": 8 * MIB})
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    await cloud.send_parts(MODEL, cut(bytes(8 * MIB)))
    fill(disk, left_bytes=2 * MIB)
    await cloud.call("PATCH", f"{MODEL}/finish_upload", {"status": "failed", "reason": "no room"})
    assert files(disk) == []


async def test_a_full_disk_under_the_database_is_a_503_and_reads_go_on(
    disk: Path, blobs: BlobStore
) -> None:
    store = QuickStore(disk / "hotplate.db")
    app = make_app(store, blobs, FakeController(store), ApiSettings())
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        await cloud.register("bento", "echo", "v1")
        filler = fill(disk)
        names = [f"n{number}" for number in range(40)]  # the log of the database has some room
        with pytest.raises(Refused, match="nothing was changed, so try again") as refused:
            for name in names:
                await cloud.call("POST", "/api/v1/bento_repositories", {"name": name})
        assert (refused.value.status, refused.value.code) == (503, "store_failed")
        assert (await cloud.call("GET", BENTO))["upload_status"] == "pending"
        async with cloud.http.get("/healthz") as answer:
            assert answer.status == 200
        filler.unlink()
        await cloud.register("bento", "later", "v1")
    store.close()
