"""Pulling what lies at a URL, through a real agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    OriginUnavailable,
    UnknownBlob,
    UnknownUrl,
    VersionChanged,
)
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.tiers.durable_folder import PARTIAL
from tests.support.cache.agents import agent
from tests.support.cache.fakes import AgentProcess, random_bytes
from tests.support.cache.web import WebServer
from tests.support.patience import until

WEIGHTS = random_bytes(CHUNK_BYTES + 5, 21)
CONFIG = b'{"hidden_size": 8}'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "sub" / "config.json").write_bytes(CONFIG)
    (folder / "empty").write_bytes(b"")
    return folder


async def check_that_no_byte_is_read_again(client: AgentClient, url: str) -> None:
    again = await client.pull(url)
    assert (again["bytes"], again["from_origin_bytes"]) == (len(WEIGHTS) + len(CONFIG), 0)


async def test_a_folder_is_pulled_whole_and_once(tmp_path: Path, model: Path) -> None:
    total = len(WEIGHTS) + len(CONFIG)
    async with agent(tmp_path / "data") as client:
        first = await client.pull(f"file://{model}/")
        assert (first["bytes"], first["from_origin_bytes"]) == (total, total)
        assert first["from_peers_bytes"] == 0 and first["seconds"] > 0
        await check_that_no_byte_is_read_again(client, f"file://{model}")
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
        await check_that_no_byte_is_read_again(client, url)


@pytest.mark.parametrize(
    "url", ["file:///nowhere/at/all", "nowhere", "memory://x", "what://x", "http://[what/x"]
)
async def test_a_url_that_leads_to_nothing_gets_a_sentence(tmp_path: Path, url: str) -> None:
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


async def test_what_is_here_is_listed_verified_warmed_and_removed(
    tmp_path: Path, model: Path
) -> None:
    url, total = f"file://{model}", len(WEIGHTS) + len(CONFIG)
    async with agent(tmp_path / "data") as client:
        await client.pull(url)
    async with agent(tmp_path / "data") as client:
        (item,) = await client.held()
        assert (item["name"], item["files"], item["bytes"]) == (url, 3, total)
        assert (item["memory_bytes"], item["disk_bytes"], item["pinned"]) == (0, total, False)
        assert await client.warm(url) == total
        assert (await client.held())[0]["memory_bytes"] == total
        found = await client.verify()
        assert (found["blobs"], found["bytes"], found["bad"]) == (3, 2 * total, [])
        assert await client.remove(url) == 2 * total
        assert await client.held() == [] and (await client.status())["disk_bytes"] == 0
        with pytest.raises(UnknownBlob, match="has nothing called"):
            await client.remove(url)


async def test_what_is_damaged_is_named_dropped_and_comes_anew(tmp_path: Path, model: Path) -> None:
    url = f"file://{model}"
    async with agent(tmp_path / "data", arena_limit_bytes=0) as client:
        await client.pull(url)
        disk = tmp_path / "data" / "disk"
        assert await until(lambda: damage(disk, len(WEIGHTS))) == 1
        assert (await client.verify())["bad"] == [f"{url}/model.safetensors"]
        again = await client.pull(url)
        assert again["from_origin_bytes"] == len(WEIGHTS)
        assert (await client.verify())["bad"] == []


@pytest.mark.parametrize("arena_bytes", [0, 100_000_000])
@pytest.mark.parametrize("size_bytes", [0, CHUNK_BYTES, len(WEIGHTS) + 1])
async def test_a_file_of_another_length_on_disk_is_damaged(
    tmp_path: Path, model: Path, arena_bytes: int, size_bytes: int
) -> None:
    url = f"file://{model}/model.safetensors"
    async with agent(tmp_path / "data", arena_limit_bytes=arena_bytes) as client:
        await client.pull(url)
        os.truncate((await client.pull_to_disk(url))[url], size_bytes)
        assert (await client.verify())["bad"] == [url]
        assert (await client.pull(url))["from_origin_bytes"] == len(WEIGHTS)
        assert (await client.verify())["bad"] == []


def damage(folder: Path, size: int) -> int:
    """Flips a bit of each kept file of that size; how many there were."""
    kept = [path for path in folder.iterdir() if not path.name.startswith(PARTIAL)]
    found = [path for path in kept if path.stat().st_size == size]
    for path in found:
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.seek(CHUNK_BYTES + 1)
            byte = file.read(1)
            file.seek(CHUNK_BYTES + 1)
            file.write(bytes([byte[0] ^ 1]))
    return len(found)


async def test_digests_are_kept_and_every_later_fetch_is_verified_by_them(tmp_path: Path) -> None:
    with WebServer({"/model.safetensors": WEIGHTS}) as web:
        url = f"{web.url}/model.safetensors"
        async with agent(tmp_path / "data") as client:
            assert (await client.pull(url))["from_origin_bytes"] == len(WEIGHTS) == web.sent_bytes
            await client.remove(url)
            web.files["/model.safetensors"] = WEIGHTS[:-1] + b"?"  # and says that it is the same
            with pytest.raises(ChunkCorrupt, match="chunk 1 of 2 was corrupt"):
                await client.pull(url)
            web.change("/model.safetensors", CONFIG)
            assert (await client.pull(url))["bytes"] == len(CONFIG)


async def test_a_change_during_a_pull_is_an_error_and_mixes_nothing(tmp_path: Path) -> None:
    with WebServer({"/m": WEIGHTS}) as web:
        web.hold("/m", CHUNK_BYTES)
        async with agent(tmp_path / "data") as client:
            pulling = asyncio.create_task(client.pull(f"{web.url}/m"))
            await asyncio.to_thread(web.wait_for, "/m", CHUNK_BYTES)
            web.change("/m", bytes(len(WEIGHTS)))
            web.release()
            with pytest.raises(VersionChanged, match="was changed while it was fetched"):
                await pulling
            assert (await client.pull(f"{web.url}/m"))["bytes"] == len(WEIGHTS)
            assert (await client.verify())["bad"] == []


async def test_an_origin_that_is_down_is_not_needed_for_what_is_here(tmp_path: Path) -> None:
    with WebServer({"/m/a": WEIGHTS, "/m/b": CONFIG}) as web:
        url = f"{web.url}/m"
        async with agent(tmp_path / "data") as client:
            await client.pull(url)
    async with agent(tmp_path / "data") as client:
        await check_that_no_byte_is_read_again(client, url)
        with pytest.raises(OriginUnavailable, match="does not answer"):
            await client.pull(f"{url}/c")


async def test_a_body_that_breaks_off_is_fetched_again_and_counted(tmp_path: Path) -> None:
    with WebServer({"/m": WEIGHTS}) as web:
        web.ways.closes_after = 3
        async with agent(tmp_path / "data") as client:
            found = await client.pull(f"{web.url}/m")
        assert web.sent_bytes == len(WEIGHTS) + 3 == found["from_origin_bytes"]


async def test_an_origin_that_has_no_time_at_first_is_asked_again(tmp_path: Path) -> None:
    with WebServer({"/a": CONFIG}, refuses=503) as web:
        async with agent(tmp_path) as client:
            pull = asyncio.create_task(client.pull(f"{web.url}/a"))
            await asyncio.to_thread(web.wait_for, "/a", 0)
            web.ways.refuses = 0
            assert (await pull)["from_origin_bytes"] == len(CONFIG)


async def test_a_caller_that_waits_for_a_pull_learns_that_the_agent_stops(tmp_path: Path) -> None:
    with WebServer({"/a": WEIGHTS}) as web:
        web.hold("/a", 0)
        async with contextlib.AsyncExitStack() as stack:
            process = stack.enter_context(AgentProcess(tmp_path, ""))
            client = AgentClient(process.url, "", patience_s=0)
            stack.push_async_callback(client.close)
            pull = asyncio.create_task(client.pull(f"{web.url}/a"))
            await asyncio.to_thread(web.wait_for, "/a", 0)
            await asyncio.to_thread(process.terminate)
            with pytest.raises(CacheError, match="the agent is stopping; ask again when it runs"):
                await pull
        web.release()


async def test_a_slow_origin_is_waited_for_as_long_as_bytes_come(tmp_path: Path) -> None:
    content = random_bytes(100_000, 22)
    with WebServer({"/m": content}, bytes_per_s=50_000) as web:
        async with agent(tmp_path / "data", stall_s=1) as client:
            found = await client.pull(f"{web.url}/m")
    assert found["seconds"] > 1.5 and found["from_origin_bytes"] == len(content)


async def test_a_peer_knows_the_files_and_digests_of_an_origin_that_is_down(tmp_path: Path) -> None:
    with WebServer({"/m/a": WEIGHTS, "/m/b": CONFIG}) as web:
        url = f"{web.url}/m"
        async with agent(tmp_path / "one", token="t") as one:
            await one.pull(url)
            known = await one.location(url)
            peers = (one.url.removeprefix("http://"), "127.0.0.1:9")
            async with agent(tmp_path / "two", token="t", peers=peers, stall_s=1) as two:
                web.ways.refuses = 503
                pulling = asyncio.create_task(two.pull(url))
                await asyncio.wait({pulling}, timeout=5)
                assert await two.location(url) == known and None not in known["chunks"]
                pulling.cancel()
                await asyncio.wait({pulling})


@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_first_fetch_goes_on_where_an_earlier_agent_was(tmp_path: Path, end: str) -> None:
    with WebServer({"/m": WEIGHTS}) as web:
        web.hold("/m", CHUNK_BYTES)
        url, ledger = f"{web.url}/m", tmp_path / "data" / "ledger"
        with AgentProcess(tmp_path / "data", "", arena_limit_bytes=0) as earlier:
            client = AgentClient(earlier.url)
            pulling = asyncio.create_task(client.pull(url))
            while b'"draft"' not in await asyncio.to_thread(_content, ledger):
                assert not pulling.done()
            if end == "stopped":
                assert await asyncio.to_thread(earlier.terminate) == 0
            pulling.cancel()
            await client.close()
        before_bytes = web.sent_bytes
        web.release()
        async with agent(tmp_path / "data", arena_limit_bytes=0) as again:
            found = await again.pull(url)
            assert found["from_origin_bytes"] == 5 == len(WEIGHTS) - CHUNK_BYTES
            assert (await again.verify())["bad"] == []
        assert before_bytes >= CHUNK_BYTES


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


async def test_nodes_that_know_the_digests_and_nodes_that_do_not_are_one_swarm(
    tmp_path: Path,
) -> None:
    with WebServer({"/m": WEIGHTS}) as web:
        url = f"{web.url}/m"
        async with agent(tmp_path / "one") as one:
            await one.pull(url)
            await one.remove(url)
        before_bytes = web.sent_bytes
        web.hold("/m", 0)
        async with agent(tmp_path / "two") as two:
            pulling = asyncio.create_task(two.pull(url))
            await asyncio.to_thread(web.wait_for, "/m", 0)
            peers = (two.url.removeprefix("http://"),)
            async with agent(tmp_path / "one", peers=peers) as one:
                joining = asyncio.create_task(one.pull(url))
                await _begun(one, url)
                web.release()
                found = [await pulling, await joining]
        assert web.sent_bytes - before_bytes == len(WEIGHTS)
        assert sum(each["from_peers_bytes"] for each in found) == len(WEIGHTS)


async def _begun(client: AgentClient, url: str) -> None:
    """Returns once a part of what is pulled is there."""
    while True:
        with contextlib.suppress(UnknownUrl):
            if (await client.pull_progress(url))["bytes_verified"]:
                return


async def test_what_peers_contradict_each_other_on_is_settled_at_the_origin(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "m").write_bytes(WEIGHTS)
    url = f"file://{files / 'm'}"
    stat = (files / "m").stat()
    async with contextlib.AsyncExitStack() as stack:
        peers = []
        for number, content in enumerate((bytes(len(WEIGHTS)), WEIGHTS)):
            (files / "m").write_bytes(content)
            os.utime(files / "m", ns=(stat.st_atime_ns, stat.st_mtime_ns))
            node = await stack.enter_async_context(agent(tmp_path / str(number)))
            await node.pull(url)
            peers.append(node.url.removeprefix("http://"))
        right = await node.location(url)
        third = await stack.enter_async_context(agent(tmp_path / "third", peers=tuple(peers)))
        found = await third.pull(url)
        assert await third.location(url) == right
        assert CHUNK_BYTES <= found["from_origin_bytes"] <= len(WEIGHTS) + CHUNK_BYTES
        assert (await third.verify())["bad"] == []


async def test_a_peers_digests_are_what_a_first_fetch_is_verified_by(tmp_path: Path) -> None:
    with WebServer({"/m": WEIGHTS}) as web:
        url = f"{web.url}/m"
        async with agent(tmp_path / "one") as one:
            await one.pull(url)
            web.files["/m"] = bytes(len(WEIGHTS))  # and says that it is the same
            peers = (one.url.removeprefix("http://"),)
            async with agent(tmp_path / "two", peers=peers) as two:
                with contextlib.suppress(ChunkCorrupt):  # else the peer gave the right bytes
                    await two.pull(url)
                assert await two.location(url) == await one.location(url)
                assert (await two.verify())["bad"] == []
