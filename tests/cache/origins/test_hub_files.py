"""Models of a hub that follows the Hugging Face hub's interface."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotplate.cache.errors import CacheError, OriginUnavailable, UnknownUrl
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.origins.http_client import HttpClient
from hotplate.cache.origins.hub_files import HubFiles
from hotplate.cache.origins.hub_url import HubUrl
from hotplate.cache.origins.locations import Version
from tests.support.cache.agents import agent
from tests.support.cache.fakes import random_bytes
from tests.support.cache.hub import COMMIT, Hub

WEIGHTS = random_bytes(CHUNK_BYTES + 5, 61)
FILES = {"model.safetensors": WEIGHTS, "config.json": b"{}", "onnx/a b.bin": b"onnx"}


def named(*files: str) -> dict[str, object]:
    """What a hub says of a model of these files."""
    return {"sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub("org/name", FILES) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def hub_files() -> Iterator[Callable[[], HubFiles]]:
    """Makes them as an agent that is started now does."""
    client = HttpClient()
    yield lambda: HubFiles(client, os.environ)
    client.close()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("hf://org/name", HubUrl("org/name")),
        ("hf://org/name/onnx/x", HubUrl("org/name", "main", "onnx/x")),
        ("hf://gpt2@v1", HubUrl("gpt2", "v1")),
        ("hf://org/name@v1.0_a-b/a", HubUrl("org/name", "v1.0_a-b", "a")),
        ("hf://org/name@main?endpoint=http%3A%2F%2Fh", HubUrl("org/name", endpoint="http://h")),
    ],
)
def test_a_url_names_a_model_a_revision_and_a_path(text: str, url: HubUrl) -> None:
    assert HubUrl.of(text) == url and HubUrl.of(str(url)) == url


@pytest.mark.parametrize(
    "text",
    [
        *("hf://", "hf://a/b/c@main", "hf:///x", "hf://org/name@", "hf://../name@main"),
        *("hf://org/..@main", "hf://org/a--b@main", "hf://org/a b@main", "hf://org/a\0@main"),
        *("hf://o/n@%2Fhome%2Fop%2F.config", "hf://o/n@..%2F..%2Fx", "hf://o/n@..", "hf://o/n@."),
        *("hf://o/n@refs%2Fpr%2F1", "hf://o/n@.hidden", "hf://o/n@a%00", "hf://o/n@a%0Ab"),
        *("hf://o/n@main%0A", "hf://o/n@%C3%A4", f"hf://o/n@{'a' * 97}"),
    ],
)
def test_what_names_no_model_is_refused(text: str) -> None:
    with pytest.raises(UnknownUrl, match="write hf://ORG/NAME@REVISION"):
        HubUrl.of(text)


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "/etc/passwd", "a//b", "a/", "./a", "a/./b", "a\\b", "a\0", "a\nb"),
        *("a?endpoint=http://127.0.0.1:1", "\ud800", "a/" * 65 + "a", "a" * 256),
    ],
)
def test_what_is_no_file_of_a_model_is_refused(path: str) -> None:
    with pytest.raises(UnknownUrl, match="is no file of a model"):
        HubUrl("o/n", path=path)


def test_patterns_are_few_and_short() -> None:
    HubUrl("o/n", include=("*.json",) * 100)
    for include in (("*.json",) * 101, ("*" * 257,)):
        with pytest.raises(UnknownUrl, match="at most 100 can be given"):
            HubUrl("o/n", include=include)


def test_a_revision_is_frozen_to_its_commit(hub: Hub, hub_files: Callable[[], HubFiles]) -> None:
    files = hub_files()
    found = files.find("hf://org/name@main")
    assert found.versions == files.find("hf://org/name@v1").versions
    model = Version(f"hf://org/name@{COMMIT}/model.safetensors", len(WEIGHTS), '"sha 8388613"')
    assert model in found.versions and len(found.versions) == len(FILES)
    (onnx,) = files.find("hf://org/name@main/onnx").versions
    assert onnx.url == f"hf://org/name@{COMMIT}/onnx/a b.bin"


def test_patterns_choose_files() -> None:
    url = HubUrl.of("hf://o/n@main?include=*.json&include=onnx/&exclude=*b.bin")
    assert url == HubUrl("o/n", include=("*.json", "onnx/"), exclude=("*b.bin",))
    assert HubUrl.of(str(url)) == url
    assert [name for name in (*FILES, "onnx/c") if url.names(name)] == ["config.json", "onnx/c"]
    with pytest.raises(UnknownUrl, match="asks for only"):
        HubUrl.of("hf://o/n@main?only=x")


async def test_a_model_is_pulled_from_the_hub_and_where_it_sends_us(
    tmp_path: Path, hub: Hub
) -> None:
    total = sum(map(len, FILES.values()))
    async with agent(tmp_path / "data") as client:
        found = await client.pull("hf://org/name")
        assert (
            (found["bytes"], found["from_origin_bytes"])
            == (total, total)
            == (total, hub.sent_bytes)
        )
        assert (await client.pull(f"hf://org/name@{COMMIT}"))["from_origin_bytes"] == 0
        hub.close()
        assert (await client.pull("hf://org/name"))["from_origin_bytes"] == 0


def test_the_token_goes_to_our_own_hub_only(
    hub: Hub, hub_files: Callable[[], HubFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    files = hub_files()
    view = memoryview(bytearray(10))
    for version in files.find("hf://org/name").versions:
        files.source(version).read_into(0, view[: version.size_bytes])
    assert hub.web.authorized and all(one == "Bearer hf_secret" for one in hub.web.authorized)
    assert hub.store.authorized and not any(hub.store.authorized)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    before = len(hub.web.authorized)
    hub_files().find(f"hf://org/name?endpoint={hub.url}")
    assert not any(hub.web.authorized[before:])


def test_a_model_or_hub_that_is_not_there_is_a_sentence(
    hub: Hub, hub_files: Callable[[], HubFiles]
) -> None:
    files = hub_files()
    with pytest.raises(UnknownUrl, match="there is nothing at"):
        files.find("hf://org/other")
    with pytest.raises(UnknownUrl, match="there is no file at"):
        files.find("hf://org/name@main/nowhere")
    with pytest.raises(OriginUnavailable, match="does not answer"):
        files.find("hf://org/name?endpoint=http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"sha": "../../x", "siblings": [{"rfilename": "a"}]}, "which is no hash"),
        ({"sha": "main", "siblings": [{"rfilename": "a"}]}, "which is no hash"),
        ({"siblings": [{"rfilename": "a"}]}, "something other than a model's files"),
        ([], "something other than a model's files"),
        (named("../../x"), "'../../x' is no file of a model"),
        (named("a", "a"), "its path is there twice"),
        (named("a/b", "a"), "'a' is a file and a folder"),
        (named(*map(str, range(10_001))), "has 10001 files; a model may have 10000"),
    ],
)
def test_what_a_hub_answers_cannot_leave_the_model(
    hub: Hub, hub_files: Callable[[], HubFiles], info: object, reason: str
) -> None:
    hub.web.files["/api/models/org/name/revision/main"] = json.dumps(info).encode()
    with pytest.raises(CacheError, match=reason):
        hub_files().find("hf://org/name")


def test_a_hub_that_nests_deep_is_a_sentence(hub: Hub, hub_files: Callable[[], HubFiles]) -> None:
    hub.web.files["/api/models/org/name/revision/main"] = b"[" * 500_000
    with pytest.raises(OriginUnavailable, match="something other than a model's files"):
        hub_files().find("hf://org/name")
