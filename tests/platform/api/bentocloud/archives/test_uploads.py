from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.api.web.settings import ApiSettings
from hotplate.platform.application import make_app
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import Kind
from tests.support.control_plane.cloud import (
    MANIFEST,
    MODEL_MANIFEST,
    Cloud,
    Refused,
    put,
    tar_of,
    versions,
)
from tests.support.control_plane.controller_fake import FakeController
from tests.support.patience import until

BENTO = f"{versions('bento', 'echo')}/v1"
MODEL = f"{versions('model', 'bert')}/1"
WEIGHTS = random.Random(1).randbytes(700_000)
MODEL_FILES: dict[str, str | bytes] = {
    "model.yaml": "name: bert\nversion: '1'\n",
    "weights.safetensors": WEIGHTS,
}


async def test_a_bento_in_one_request_is_a_success_without_another_word(cloud: Cloud) -> None:
    made = await cloud.register("bento", "echo", "v1")
    assert (made["transmission_strategy"], made["upload_status"]) == ("proxy", "pending")
    assert (await cloud.call("PATCH", f"{BENTO}/start_upload"))["upload_status"] == "uploading"
    tar = tar_of({"bento.yaml": "name: echo\nversion: v1\n", "src/service.py": "x = 1\n"})
    await cloud.call("PUT", f"{BENTO}/upload", data=tar)
    assert (await cloud.call("GET", BENTO))["upload_status"] == "success"


async def test_a_first_part_that_begins_no_archive_is_refused_while_it_comes(
    cloud: Cloud,
) -> None:
    """The client repeats a part that is refused, goes on, and shows what is said last."""
    await cloud.register("model", "bert", "1")
    with pytest.raises(Refused, match=r"'\.\.'"):
        await cloud.send_parts(MODEL, [tar_of({"../x": b""})])
    upload_id = (await cloud.call("PATCH", f"{MODEL}/start_multipart_upload"))["upload_id"]
    body = {"upload_id": upload_id, "parts": []}
    with pytest.raises(Refused, match=r"'\.\.'"):
        await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", body)


async def test_a_refusal_is_kept_while_other_parts_of_the_upload_arrive(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    upload_id = (await cloud.call("PATCH", f"{MODEL}/start_multipart_upload"))["upload_id"]
    urls = []
    for number in (1, 2):
        part = {"upload_id": upload_id, "part_number": number}
        signed = await cloud.call("PATCH", f"{MODEL}/presign_multipart_upload_url", part)
        urls.append(signed["presigned_upload_url"])
    half_sent, other_there = asyncio.Event(), asyncio.Event()
    tar = tar_of({"x": b"", "../x": b""})

    async def slowly() -> AsyncIterator[bytes]:
        yield tar[:512]
        half_sent.set()
        await other_there.wait()
        yield tar[512:]

    async with ClientSession() as session:
        sending = asyncio.create_task(session.put(urls[0], data=slowly()))
        await half_sent.wait()
        await put(urls[1], b"more")
        other_there.set()
        assert (await sending).status == 400
    body = {"upload_id": upload_id, "parts": []}
    with pytest.raises(Refused, match=r"'\.\.'"):
        await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", body)


async def test_who_goes_on_with_an_upload_is_told_which_parts_have_arrived(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    tar = tar_of(MODEL_FILES)
    pieces = [tar[:200_000], tar[200_000:400_000], tar[400_000:]]
    upload_id, done = await cloud.send_parts(MODEL, pieces[:2])
    begun = await cloud.call("PATCH", f"{MODEL}/start_multipart_upload")
    assert begun["upload_id"] == upload_id
    assert [(part["part_number"], part["size_bytes"]) for part in begun["parts"]] == [
        (1, 200_000),
        (2, 200_000),
    ]
    assert [part["etag"] for part in begun["parts"]] == [part["etag"].strip('"') for part in done]
    body = {"upload_id": upload_id, "part_number": 3}
    signed = await cloud.call("PATCH", f"{MODEL}/presign_multipart_upload_url", body)
    etag = await put(signed["presigned_upload_url"], pieces[2])
    parts = [*begun["parts"], {"part_number": 3, "etag": etag}]
    await cloud.call(
        "PATCH", f"{MODEL}/complete_multipart_upload", {"upload_id": upload_id, "parts": parts}
    )
    await until(lambda: uploaded(cloud))


async def uploaded(cloud: Cloud) -> bool:
    return bool((await cloud.call("GET", MODEL))["upload_status"] == "success")


async def test_unused_strings_are_empty_and_the_manifest_comes_back_as_it_was_sent(
    cloud: Cloud,
) -> None:
    made = await cloud.register("bento", "echo", "v1", MANIFEST | {"odd": [1, {"b": None}]})
    for key in ("presigned_upload_url", "presigned_download_url", "upload_id", "description"):
        assert made[key] == ""
    assert made["manifest"] == MANIFEST | {"odd": [1, {"b": None}]}
    assert made["name"] == made["version"] == "v1"
    assert made["build_at"] == "2026-01-02T03:04:05.000006+00:00"


async def test_a_version_that_is_made_twice_is_the_same_one(cloud: Cloud) -> None:
    first, second = await asyncio.gather(
        cloud.register("bento", "echo", "v1"), cloud.register("bento", "echo", "v1")
    )
    assert first["uid"] == second["uid"]


async def test_a_repository_without_versions_is_not_found_when_the_latest_is_asked(
    cloud: Cloud,
) -> None:
    await cloud.call("POST", "/api/v1/bento_repositories", {"name": "echo", "description": ""})
    with pytest.raises(Refused, match="404"):
        await cloud.call("GET", f"{versions('bento', 'echo')}?count=1")
    await cloud.register("bento", "echo", "v1")
    await cloud.register("bento", "echo", "v2")
    latest = await cloud.call("GET", f"{versions('bento', 'echo')}?count=1&start=&q=")
    assert [item["version"] for item in latest["items"]] == ["v2"]
    change = {"labels": [{"key": "stage", "value": "old"}]}
    await cloud.call("PATCH", BENTO, change)
    old = await cloud.call("GET", f"{versions('bento', 'echo')}?count=10&q=label:stage=old")
    assert [item["version"] for item in old["items"]] == ["v1"]
    repository = await cloud.call("GET", "/api/v1/bento_repositories/echo")
    assert repository["latest_bento"]["version"] == "v2"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"src/service.py": "x"}, "its tar has no bento.yaml"),
        ({"bento.yaml": "name: other\nversion: v1\n"}, "bento.yaml is of 'other:v1'"),
        ({"bento.yaml": "name: [\n"}, "bento.yaml: it is not YAML"),
        ({"bento.yaml": "[" * 200_000}, "bento.yaml: it nests more than 100 deep"),
        ({"bento.yaml": "name: [a]\nversion: v1\n"}, "its name or version is not text"),
        ({"bento.yaml": "just words"}, "bento.yaml: it is not a mapping"),
        ({"../bento.yaml": "name: echo\nversion: v1\n"}, r"\.\."),
    ],
)
async def test_a_tar_that_is_not_the_bento_is_refused_and_may_be_sent_again(
    cloud: Cloud, files: dict[str, str], reason: str
) -> None:
    await cloud.register("bento", "echo", "v1")
    with pytest.raises(Refused, match=reason) as refused:
        await cloud.call("PUT", f"{BENTO}/upload", data=tar_of(files))
    assert refused.value.status == 400
    failed = await cloud.call("GET", BENTO)
    assert failed["upload_status"] == "failed"
    assert failed["upload_finished_reason"] == refused.value.message
    await cloud.call("PATCH", BENTO, {"description": "again", "manifest": MANIFEST, "labels": []})
    await cloud.push_bento()
    again = await cloud.call("GET", BENTO)
    assert (again["upload_status"], again["upload_finished_reason"]) == ("success", "")


async def test_what_is_no_tar_is_refused(cloud: Cloud) -> None:
    await cloud.register("bento", "echo", "v1")
    with pytest.raises(Refused) as refused:
        await cloud.call("PUT", f"{BENTO}/upload", data=b"not a tar" * 1000)
    assert (refused.value.status, refused.value.code) == (400, "bad_archive")


async def test_a_body_that_is_cut_off_leaves_nothing(
    cloud: Cloud, blobs: BlobStore, port: int
) -> None:
    await cloud.register("bento", "echo", "v1")
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"PUT {BENTO}/upload HTTP/1.1\r\nHost: localhost\r\nX-YATAI-API-TOKEN: {cloud.token}\r\n"
    tar = tar_of({"weights": bytes(2_990_000)})
    writer.write(f"{head}Content-Length: {len(tar)}\r\n\r\n".encode() + tar[:2_000_000])
    await until(lambda: blobs.used_bytes() > 0)
    writer.close()
    await until(lambda: status(cloud) == "failed")
    assert "send it again" in (await cloud.call("GET", BENTO))["upload_finished_reason"]
    await until(lambda: blobs.used_bytes() == 0)


def status(cloud: Cloud) -> str:
    tenant = cloud.user.organization.id
    return cloud.store.artifacts.get(tenant, Kind.BENTO, "echo", "v1").upload_status


async def test_a_good_copy_outlives_a_failed_replacement(cloud: Cloud) -> None:
    await cloud.push_bento()
    await cloud.call("PATCH", f"{BENTO}/start_upload")
    with pytest.raises(Refused):
        await cloud.call("PUT", f"{BENTO}/upload", data=b"rubbish" * 1000)
    assert (await cloud.call("GET", BENTO))["upload_status"] == "success"
    await cloud.deploy()


async def test_a_bento_comes_back_as_a_tar(cloud: Cloud) -> None:
    await cloud.push_bento()
    async with cloud.http.get(f"{BENTO}/download") as response:
        data = await response.read()
    assert response.content_length == len(data)
    assert b"./bento.yaml" in data


async def test_a_model_goes_up_in_parts_and_comes_back_by_a_signed_url(
    cloud: Cloud, blobs: BlobStore
) -> None:
    made = await cloud.register("model", "bert", "1")
    assert made["transmission_strategy"] == "presigned_url"
    tar = tar_of(MODEL_FILES)
    done = await cloud.push_parts("bert", "1", [tar[:300_000], tar[300_000:]])
    assert done["upload_status"] == "success"
    signed = await cloud.call("PATCH", f"{MODEL}/presign_download_url")
    async with ClientSession() as session, session.get(signed["presigned_download_url"]) as got:
        data = await got.read()
    assert got.content_length == len(data)
    assert WEIGHTS in data
    # Blobs and the manifest only: the parts are gone.
    assert blobs.used_bytes() < len(tar)


async def test_parts_that_are_missing_or_replaced_are_named(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    tar = tar_of(MODEL_FILES)
    upload_id, parts = await cloud.send_parts(MODEL, [tar[:200_000], tar[200_000:]])
    complete = f"{MODEL}/complete_multipart_upload"
    with pytest.raises(Refused, match=r"parts\[0\].part_number: part 1 is missing"):
        await cloud.call("PATCH", complete, {"upload_id": upload_id, "parts": parts[1:]})
    wrong = [parts[0], {"part_number": 2, "etag": '"0"'}]
    with pytest.raises(Refused, match=r"parts\[1\].etag: part 2 was replaced"):
        await cloud.call("PATCH", complete, {"upload_id": upload_id, "parts": wrong})
    more = [*parts, {"part_number": 3, "etag": '"0"'}]
    with pytest.raises(Refused, match=r"parts\[2\].part_number: part 3 has not arrived"):
        await cloud.call("PATCH", complete, {"upload_id": upload_id, "parts": more})
    # The client completes what it has after a part failed, too: half a tar is no model.
    with pytest.raises(Refused):
        await cloud.call("PATCH", complete, {"upload_id": upload_id, "parts": parts[:1]})
    with pytest.raises(Refused, match="model 'bert:1'"):
        await cloud.call("PATCH", f"{MODEL}/finish_upload", {"status": "success", "reason": ""})


async def test_parts_that_arrived_stay_until_the_upload_is_complete(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    tar = tar_of(MODEL_FILES)
    first, parts = await cloud.send_parts(MODEL, [tar[:200_000]])
    await cloud.call("PATCH", f"{MODEL}/finish_upload", {"status": "failed", "reason": "no net"})
    assert (await cloud.call("GET", MODEL))["upload_finished_reason"] == "no net"
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    again = (await cloud.call("PATCH", f"{MODEL}/start_multipart_upload"))["upload_id"]
    assert again == first
    body = {"upload_id": again, "part_number": 2}
    signed = await cloud.call("PATCH", f"{MODEL}/presign_multipart_upload_url", body)
    etag = await put(signed["presigned_upload_url"], tar[200_000:])
    parts.append({"part_number": 2, "etag": etag})
    body = {"upload_id": again, "parts": parts}
    done = await cloud.call("PATCH", f"{MODEL}/complete_multipart_upload", body)
    assert done["upload_status"] == "success"


async def test_a_tar_in_one_piece_at_a_signed_url_is_unpacked_when_it_is_finished(
    cloud: Cloud,
) -> None:
    await cloud.register("model", "bert", "1")
    signed = await cloud.call("PATCH", f"{MODEL}/presign_upload_url")
    await cloud.call("PATCH", f"{MODEL}/start_upload")
    await put(signed["presigned_upload_url"], gzip.compress(tar_of(MODEL_FILES)))
    done = await cloud.call("PATCH", f"{MODEL}/finish_upload", {"status": "success", "reason": ""})
    assert done["upload_status"] == "success"


async def test_nothing_uploaded_is_not_a_success(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    with pytest.raises(Refused, match="nothing was uploaded"):
        await cloud.call("PATCH", f"{MODEL}/finish_upload", {"status": "success", "reason": ""})


async def test_a_signed_url_is_good_for_what_it_was_signed_for_only(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    _, parts = await cloud.send_parts(MODEL, [b"x"])
    signed = await cloud.call("PATCH", f"{MODEL}/presign_upload_url")
    url = signed["presigned_upload_url"]
    for wrong in (url[:-4] + "AAA=", url.replace("/transfers/", "/transfers/x"), url + "."):
        with pytest.raises(Refused) as refused:
            await put(wrong, b"x")
        assert refused.value.status == 403
    async with ClientSession() as session, session.get(url) as response:
        assert response.status == 403
    assert len(parts) == 1


async def test_a_part_of_an_upload_that_is_over_is_refused(cloud: Cloud) -> None:
    await cloud.register("model", "bert", "1")
    signed = await cloud.call("PATCH", f"{MODEL}/presign_upload_url")
    await cloud.push_parts("bert", "1", [tar_of(MODEL_FILES)])
    with pytest.raises(Refused, match="the upload has ended"):
        await put(signed["presigned_upload_url"], b"x")


async def test_a_hugging_face_model_needs_no_upload(cloud: Cloud) -> None:
    manifest = MODEL_MANIFEST | {"metadata": {"registry": "huggingface", "model_id": "org/hub"}}
    made = await cloud.register("model", "org--hub", "abc", manifest)
    assert made["upload_status"] == "pending"
    one = f"{versions('model', 'org--hub')}/abc/presign_download_url"
    assert (await cloud.call("PATCH", one))["presigned_download_url"] == ""


async def test_names_that_are_none_are_refused(cloud: Cloud) -> None:
    for name in ("../x", "", "a b", "x" * 200):
        with pytest.raises(Refused, match="name") as refused:
            await cloud.call("POST", "/api/v1/bento_repositories", {"name": name})
        assert refused.value.status == 400


@asynccontextmanager
async def swept(
    store: Store, blobs: BlobStore, controller: FakeController, life_s: float
) -> AsyncIterator[Cloud]:
    """An API that looks for old uploads all the time."""
    settings = ApiSettings(upload_life_s=life_s, upload_sweep_s=0.01)
    app = make_app(store, blobs, controller, settings)
    async with TestServer(app) as server, Cloud(server, store) as cloud:
        yield cloud


async def test_parts_that_nobody_goes_on_with_are_removed_while_the_server_runs(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    tar = tar_of(MODEL_FILES)
    async with swept(store, blobs, controller, life_s=3600.0) as cloud:
        await cloud.register("model", "bert", "1")
        upload, _ = await cloud.send_parts(MODEL, [tar[:300_000]])
        assert len(blobs.parts(upload)) == 1
    async with swept(store, blobs, controller, life_s=0.0) as cloud:
        await until(lambda: not blobs.parts(upload))
        await until(lambda: store.uploads.get(upload) is None)
        again = {"upload_id": upload, "part_number": 2}
        with pytest.raises(Refused, match="that upload has ended; start it again"):
            await cloud.call("PATCH", f"{MODEL}/presign_multipart_upload_url", again)


async def test_an_upload_that_goes_on_is_not_swept_away(
    store: Store, blobs: BlobStore, controller: FakeController
) -> None:
    async with swept(store, blobs, controller, life_s=3600.0) as cloud:
        await cloud.register("model", "bert", "1")
        upload = (await cloud.call("PATCH", f"{MODEL}/start_multipart_upload"))["upload_id"]
        begun = store.uploads.stale(datetime.now(UTC))
        assert [one.id for one in begun] == [upload]
        between = datetime.now(UTC)
        await cloud.send_parts(MODEL, [tar_of(MODEL_FILES)])
        assert store.uploads.stale(between) == []
