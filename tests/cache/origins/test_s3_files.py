"""Files in buckets of a real S3 server."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy
import pytest
import safetensors.numpy

from hotplate.cache.errors import OriginUnavailable, UnknownUrl, VersionChanged
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.s3_files import S3Files
from hotplate.serving import weights
from tests.support.cache.agents import agent
from tests.support.cache.fakes import random_bytes
from tests.support.cache.stores import s3_server

WEIGHTS = random_bytes(CHUNK_BYTES + 5, 51)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket, which the environment says how to reach."""
    options = s3_server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    fs = fsspec.filesystem("s3", **options)
    name = uuid.uuid4().hex
    fs.mkdir(name)
    fs.pipe(f"{name}/m/model.safetensors", WEIGHTS)
    fs.pipe(f"{name}/m/sub dir/config+1.json", b"{}")
    yield f"s3://{name}"


@pytest.fixture
def files() -> Iterator[S3Files]:
    client = HttpClient()
    yield S3Files(client, lambda: 0.0, os.environ)
    client.close()


async def test_a_folder_of_a_bucket_is_pulled_once(tmp_path: Path, bucket: str) -> None:
    total = len(WEIGHTS) + 2
    async with agent(tmp_path / "data") as client:
        first = await client.pull(f"{bucket}/m")
        assert (first["bytes"], first["from_origin_bytes"]) == (total, total)
        one = await client.pull(f"{bucket}/m/model.safetensors")
        assert (one["bytes"], one["from_origin_bytes"]) == (len(WEIGHTS), 0)


async def test_weights_are_loaded_from_a_bucket_by_their_url(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = numpy.arange(CHUNK_BYTES // 4, dtype="float64")
    body = safetensors.numpy.save({"large": large, "small": large[:3].astype("float16")})
    fsspec.filesystem("s3", **s3_server()).pipe(f"{bucket}/a.safetensors", body)

    def load() -> None:
        with weights.safe_open(f"{bucket}/a.safetensors", "np") as file:
            assert file.keys() == ["large", "small"]
            assert numpy.array_equal(file.get_tensor("large"), large)
            assert file.get_slice("small")[1:].tolist() == [1, 2]

    async with agent(tmp_path / "data") as client:
        monkeypatch.setenv("HOTPLATE_AGENT", client.url.removeprefix("http://"))
        await asyncio.to_thread(load)
        assert (await client.status())["origin_bytes"] == len(body)


def test_what_reads_buckets_is_loaded_before_one_is_asked_for(
    files: S3Files, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.prepare()
    (loading,) = [one for one in threading.enumerate() if one.name == "s3"]
    loading.join()
    monkeypatch.setattr(fsspec, "filesystem", lambda *_, **__: pytest.fail("loaded only now"))
    assert files.find(f"{bucket}/m").versions


def test_a_change_during_a_fetch_is_an_error(files: S3Files, bucket: str) -> None:
    (version,) = files.find(f"{bucket}/m/model.safetensors").versions
    assert version.tag.startswith('"') and version.size_bytes == len(WEIGHTS)
    source = files.source(version)
    view = memoryview(bytearray(100))
    source.read_into(5, view)
    assert view == WEIGHTS[5:105]
    fs, path = files.file_system(version.url)
    fs.pipe(path, bytes(len(WEIGHTS)))
    with pytest.raises(VersionChanged):
        source.read_into(105, view)
    assert files.find(version.url).versions != (version,)


def test_what_is_not_there_or_cannot_be_reached_is_a_sentence(
    files: S3Files, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (f"{bucket}/nothing", "s3://no-such-bucket/x"):
        with pytest.raises(UnknownUrl, match="there is nothing at"):
            files.find(url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(OriginUnavailable, match="cannot be listed"):
        S3Files(HttpClient(), lambda: 0.0, os.environ).find(f"{bucket}/m")
