"""The agent's HTTP interface: which requests are let in, and what they get."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import aiohttp
import pytest
from yarl import URL

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.errors import CacheError
from hotplate.machine.access.metrics_reader import MetricsReader
from tests.support.cache.agent_bench import SHARED, WEIGHTS, AgentBench, client_at
from tests.support.patience import PATIENCE_S


async def test_only_requests_with_the_token_are_let_in(agents: AgentBench) -> None:
    async with agents.client(token="secret") as friend, client_at(friend.url) as stranger:
        with pytest.raises(CacheError, match="needs its token"):
            await stranger.status()
        await friend.status()
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"{friend.url}/healthz")).status == 200
            assert (await session.get(f"{friend.url}/metrics")).status == 401


async def test_metrics_are_prometheus_text(agents: AgentBench) -> None:
    async with agents.client() as client, aiohttp.ClientSession() as session:
        await client.tree(agents.first.digest, wait="all")
        async with session.get(f"{client.url}/metrics") as response:
            text = await response.text()
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(samples["hotplate_cache_origin_bytes_total"]) == agents.first.size_bytes
    assert float(samples["hotplate_cache_disk_bytes"]) == agents.first.size_bytes
    assert float(samples["hotplate_cache_arena_bytes"]) == len(WEIGHTS)
    assert float(samples['hotplate_cache_chunks_total{result="verified",source="origin"}']) == 7


async def test_who_reads_the_metrics_is_said_by_who_has_the_token(agents: AgentBench) -> None:
    readers = [MetricsReader(sha256(b"acmes").hexdigest(), organization="acme")]
    async with agents.client(token="secret") as friend, aiohttp.ClientSession() as session:

        async def read() -> tuple[int, str]:
            headers = {"Authorization": "Bearer acmes"}
            async with session.get(f"{friend.url}/metrics", headers=headers) as response:
                return response.status, await response.text()

        async with session.put(f"{friend.url}/v1/readers", json={"readers": []}) as response:
            assert response.status == 401
        assert (await read())[0] == 401
        await friend.set_readers(readers)
        assert await read() == (200, "")  # an agent's lines are of no organization
        await friend.set_readers([])
        assert (await read())[0] == 401
        headers = {"Authorization": "Bearer secret"}
        for sent in (b"[]", b'{"readers": [{}]}', b"\xff"):
            made = session.put(f"{friend.url}/v1/readers", data=sent, headers=headers)
            async with made as response:
                assert response.status == 400


async def test_unknown_addresses_are_answered_in_the_one_form(agents: AgentBench) -> None:
    settings = AgentSettings(agents.folder / "data", agents.server.url)
    async with run(settings) as url, aiohttp.ClientSession() as session:
        for path in ("/v1/trees/..%2f..%2fetc", "/nothing"):
            async with session.get(URL(url + path, encoded=True)) as response:
                response_body = await response.json()
            assert response.status == 404 and response_body["error"]["code"] == "not_found"
            assert "Not Found" in response_body["error"]["message"]


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (b"PUT /v1/pulls?url=" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost", "too long"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9000, "too long"),
        (b"no request at all", "not a request in HTTP/1.1"),
    ],
)
async def test_bytes_that_are_no_request_are_refused_in_a_sentence_and_no_traceback_is_logged(
    agents: AgentBench, caplog: pytest.LogCaptureFixture, head: bytes, sentence: str
) -> None:
    settings = AgentSettings(agents.folder / "data", agents.server.url)
    async with run(settings) as url, asyncio.timeout(PATIENCE_S):
        host, _, port = url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + b"\r\n\r\n")
        response_body = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    assert " 400 Bad Request" in response_body.partition("\r\n")[0] and sentence in response_body
    assert caplog.text == ""


async def test_the_operator_learns_that_the_disk_tier_is_too_small(agents: AgentBench) -> None:
    async with agents.client(disk_limit_bytes=len(SHARED) + 1000) as client:
        await client.tree(agents.first.digest)
        async with asyncio.timeout(PATIENCE_S):
            while not (troubles := await client.troubles()):  # noqa: ASYNC110 (nothing signals it)
                await asyncio.sleep(0.01)
        assert len(troubles) == 1 and "raise the limit (--disk)" in troubles[0]
