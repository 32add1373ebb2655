"""Pulling what lies at a URL, through a real agent."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError, UnknownUrl
from hotplate.cache.manifest import CHUNK_BYTES
from tests.cache.fakes import random_bytes

WEIGHTS = random_bytes(CHUNK_BYTES + 5, 21)
CONFIG = b'{"hidden_size": 8}'


@asynccontextmanager
async def agent(data: Path, **options: Any) -> AsyncIterator[AgentClient]:
    async with run(AgentSettings(data, **options)) as url:
        client = AgentClient(url, options.get("token", ""), patience_s=0)
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "sub" / "config.json").write_bytes(CONFIG)
    (folder / "empty").write_bytes(b"")
    return folder


async def test_a_folder_is_pulled_whole_and_once(tmp_path: Path, model: Path) -> None:
    total = len(WEIGHTS) + len(CONFIG)
    async with agent(tmp_path / "data") as client:
        first = await client.pull(f"file://{model}/")
        assert (first["bytes"], first["from_origin_bytes"]) == (total, total)
        assert first["from_peers_bytes"] == 0 and first["seconds"] > 0
        again = await client.pull(f"file://{model}")
        assert (again["bytes"], again["from_origin_bytes"]) == (total, 0)
        progress = await client.pull_progress(f"file://{model}")
        assert progress["complete"] and progress["bytes_verified"] == total


async def test_pulls_of_one_url_are_joined(tmp_path: Path, model: Path) -> None:
    async with agent(tmp_path / "data") as client:
        await asyncio.gather(*(client.pull(f"file://{model}") for _ in range(4)))
        assert (await client.status())["origin_bytes"] == len(WEIGHTS) + len(CONFIG)


async def test_a_restart_reads_no_byte_again(tmp_path: Path, model: Path) -> None:
    url = f"file://{model}"
    async with agent(tmp_path / "data") as client:
        await client.pull(url)
    async with agent(tmp_path / "data") as client:
        again = await client.pull(url)
        assert (again["bytes"], again["from_origin_bytes"]) == (len(WEIGHTS) + len(CONFIG), 0)


@pytest.mark.parametrize("url", ["file:///nowhere/at/all", "nowhere", "memory://x", "what://x"])
async def test_a_url_with_nothing_behind_it_is_said_in_a_sentence(tmp_path: Path, url: str) -> None:
    async with agent(tmp_path / "data") as client:
        with pytest.raises(UnknownUrl, match=r"nowhere|memory|what"):
            await client.pull(url)


async def test_a_program_with_the_token_opens_a_url_at_the_socket(
    tmp_path: Path, model: Path
) -> None:
    url = f"file://{model}/model.safetensors"
    async with agent(tmp_path / "data", token="secret") as client:
        path = (await client.status())["socket"]
        refused, _ = await asyncio.to_thread(ask, path, {"open_url": url, "token": "guess"})
        assert refused["error"]["code"] == "unauthorized"
        opening, content = await asyncio.to_thread(ask, path, {"open_url": url, "token": "secret"})
        assert (opening["size"], content) == (len(WEIGHTS), WEIGHTS)
        refused, _ = await asyncio.to_thread(
            ask, path, {"open_url": f"file://{model}", "token": "secret"}
        )
        assert "is a folder of 3 files" in refused["error"]["message"]


def ask(path: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The first line that the socket answers, and the bytes once they are complete."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        data, fds, _, _ = socket.recv_fds(connection, 1 << 16, 1)
        lines = data.split(b"\n")
        opening = json.loads(lines[0])
        if not fds:
            return opening, b""
        while b'{"complete": true}' not in data and len(opening["done"]) < 2:
            data += connection.recv(1 << 16)
        with open(fds[0], "rb") as file:
            return opening, file.read()


async def test_beyond_this_machine_an_agent_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"0\.0\.0\.0 can be reached from other machines"):
        async with run(AgentSettings(tmp_path / "data", host="0.0.0.0")):
            pass
    async with run(AgentSettings(tmp_path / "data", host="0.0.0.0", token="t")):
        pass
