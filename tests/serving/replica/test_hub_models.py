"""Models that stay at a hub, in the replica's cache before BentoML asks for them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hotplate.cache.origins.hub_url import HubUrl
from hotplate.serving.replica.errors import BentoUnusable
from hotplate.serving.replica.hub_cache import add_hub_model
from tests.support.cache.agents import agent
from tests.support.cache.hub import COMMIT, Hub
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Agent, Phases, lend_own_environment, runtime_of, workload

FILES = {"model.safetensors": b"weights", "sub/config.json": b"{}", "model.bin": b"not these"}

BENTOML = """
import json, sys
from _bentoml_sdk.models.huggingface import HuggingFaceModel
from bentoml._internal.bento.bento import BentoModelInfo, bentoml_cattr

about = json.loads(sys.argv[1])
info = bentoml_cattr.structure(about, BentoModelInfo)
print(HuggingFaceModel.from_info(info).resolve())
"""
"""What BentoML does of a bento's model before it starts a service."""


def described(endpoint: str) -> dict[str, Any]:
    """What `bentoml build` writes of such a model."""
    return {
        "tag": "org--name:0123456789abcdef",
        "registry": "huggingface",
        "metadata": {
            "model_id": "org/name",
            "revision": COMMIT,
            "endpoint": endpoint,
            "include": None,
            "exclude": ["*.bin"],
        },
    }


def resolved(about: dict[str, Any], cache: str) -> dict[str, bytes]:
    """The files that BentoML finds, with nothing but that cache."""
    done = subprocess.run(
        [sys.executable, "-c", BENTOML, json.dumps(about)],
        env={**os.environ, "BENTOML_HF_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(done.stdout.splitlines()[-1])
    found = (one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path)): one.read_bytes() for one in found}


async def test_bentoml_finds_a_hubs_model_though_the_hub_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub("org/name", FILES) as hub:
        about = described(hub.url)
        bento = write_bento(tmp_path / "bento", "", hub_models=[about])
        lend_own_environment(tmp_path, bento)
        fake = Agent({"bento": bento})
        async with agent(tmp_path / "data") as client:
            monkeypatch.setattr(fake, "pull_to_disk", client.pull_to_disk)
            runtime = runtime_of(tmp_path, fake, hubs=[hub.url])
            await runtime.prepare(workload(), "r", str(tmp_path / "first"), Phases())
            assert hub.sent_bytes == len(b"weights") + len(b"{}")
            hub.close()
            second = await runtime.prepare(workload(), "s", str(tmp_path / "second"), Phases())
        disk = {one.stat().st_ino for one in (tmp_path / "data" / "disk").iterdir()}
        beside = tmp_path / "second.hub"
        assert str(beside) in second.reads
        assert {one.stat().st_ino for one in beside.rglob("*.*") if one.is_file()} <= disk
        # What is its own to write to shares nothing with what others read.
        own = [one for one in (tmp_path / "second").rglob("*") if not one.is_symlink()]
        assert own and not disk & {one.stat().st_ino for one in own}
    found = await asyncio.to_thread(resolved, about, second.env["BENTOML_HF_CACHE_DIR"])
    assert found == {name: FILES[name] for name in ("model.safetensors", "sub/config.json")}


async def test_what_cannot_be_had_is_left_to_bentoml(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "", hub_models=[described("http://hub.invalid")])
    lend_own_environment(tmp_path, bento)
    fake = Agent({"bento": bento})
    command = await runtime_of(tmp_path, fake, hubs=["http://hub.invalid/"]).prepare(
        workload(), "r", str(tmp_path / "replica"), Phases()
    )
    assert "BENTOML_HF_CACHE_DIR" not in command.env
    assert fake.pulled == [
        f"hf://org/name@{COMMIT}?endpoint=http%3A%2F%2Fhub.invalid&exclude=%2A.bin"
    ]


@pytest.mark.parametrize("revision", ["{}/secrets", "../../../secrets"])
async def test_a_revision_cannot_be_a_path(tmp_path: Path, revision: str) -> None:
    secret = tmp_path / "secrets" / "canary"
    secret.parent.mkdir()
    secret.write_text("the operator's")
    with Hub("org/name", {"canary": b"the hub's"}) as hub:
        about = described(hub.url)
        about["metadata"]["revision"] = revision = revision.format(tmp_path)
        info = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "canary"}]}).encode()
        hub.web.change(f"/api/models/org/name/revision/{quote(revision, safe='')}", info)
        bento = write_bento(tmp_path / "bento", "", hub_models=[about])
        lend_own_environment(tmp_path, bento)
        fake = Agent({"bento": bento})
        async with agent(tmp_path / "data") as client:
            runtime = runtime_of(tmp_path, fake, hubs=[hub.url])
            fake.pull_to_disk = client.pull_to_disk  # type: ignore[method-assign]
            with pytest.raises(BentoUnusable, match="is no revision of org/name"):
                await runtime.prepare(workload(), "r", str(tmp_path / "replica"), Phases())
    assert secret.read_text() == "the operator's"
    assert not (tmp_path / "replica" / "hub").exists()


async def test_a_hub_that_nobody_has_listed_is_not_asked(tmp_path: Path) -> None:
    """A bento's author would have the agent ask what only this machine reaches."""
    with Hub("org/name", FILES) as hub:
        bento = write_bento(tmp_path / "bento", "", hub_models=[described(hub.url)])
        lend_own_environment(tmp_path, bento)
        fake = Agent({"bento": bento})
        async with agent(tmp_path / "data") as client:
            fake.pull_to_disk = client.pull_to_disk  # type: ignore[method-assign]
            with pytest.raises(BentoUnusable, match=r"model_endpoints of \[platform\]"):
                await runtime_of(tmp_path, fake).prepare(
                    workload(), "r", str(tmp_path / "replica"), Phases()
                )
        assert hub.web.requests == []


def test_what_is_there_already_is_not_written_to(tmp_path: Path) -> None:
    """Neither through a link, nor by a name that is there twice."""
    victim, source = tmp_path / "victim", tmp_path / "source"
    victim.write_text("the operator's")
    source.write_text("the hub's")
    url = HubUrl("org/name", COMMIT)
    files = {str(HubUrl("org/name", COMMIT, "a")): str(source)}
    snapshot = tmp_path / "beside" / "models--org--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "a").symlink_to(victim)
    with pytest.raises(FileExistsError):
        add_hub_model(tmp_path / "cache", tmp_path / "beside", url, files)
    assert victim.read_text() == "the operator's"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no second file system")
def test_a_file_on_another_disk_is_copied_read_only(tmp_path: Path) -> None:
    before = os.umask(0o077)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        source = Path(elsewhere, "source")
        source.write_text("the hub's")
        url = HubUrl("org/name", COMMIT)
        files = {str(HubUrl("org/name", COMMIT, "a")): str(source)}
        add_hub_model(tmp_path / "cache", tmp_path / "beside", url, files)
    os.umask(before)
    folders = [path for path in (tmp_path / "beside").rglob("*") if path.is_dir()]
    assert folders and all(path.stat().st_mode & 0o777 == 0o755 for path in folders)
    copy = tmp_path / "cache" / "models--org--name" / "snapshots" / COMMIT / "a"
    assert copy.read_text() == "the hub's" and copy.stat().st_mode & 0o777 == 0o444
