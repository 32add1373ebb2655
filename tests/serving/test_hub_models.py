"""Models that stay at a hub, in the replica's cache before BentoML asks for them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cache.hub import COMMIT, Hub
from tests.cache.test_pulls import agent
from tests.serving.bentos import write_bento
from tests.serving.replicas import Agent, Phases, Served, lend_own_environment, runtime_of

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
            runtime = runtime_of(tmp_path, fake)
            await runtime.prepare(Served(), "r", str(tmp_path / "first"), Phases())
            assert hub.sent_bytes == len(b"weights") + len(b"{}")
            hub.close()
            second = await runtime.prepare(Served(), "s", str(tmp_path / "second"), Phases())
    found = await asyncio.to_thread(resolved, about, second.env["BENTOML_HF_CACHE_DIR"])
    assert found == {name: FILES[name] for name in ("model.safetensors", "sub/config.json")}


async def test_what_cannot_be_had_is_left_to_bentoml(tmp_path: Path) -> None:
    bento = write_bento(tmp_path / "bento", "", hub_models=[described("http://hub.invalid")])
    lend_own_environment(tmp_path, bento)
    fake = Agent({"bento": bento})
    command = await runtime_of(tmp_path, fake).prepare(
        Served(), "r", str(tmp_path / "replica"), Phases()
    )
    assert "BENTOML_HF_CACHE_DIR" not in command.env
    assert fake.pulled == [
        f"hf://org/name@{COMMIT}?endpoint=http%3A%2F%2Fhub.invalid&exclude=%2A.bin"
    ]
