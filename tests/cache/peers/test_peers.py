"""Agents that share what they fetch: real ones, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.manifest import CHUNK_BYTES, chunk_digest
from hotplate.cache.origins.locations import Version
from hotplate.cache.peers.chunk_client import ChunkClient
from hotplate.cache.peers.seeds import Seeds
from hotplate.cache.swarm.assignment import Missed
from hotplate.cache.swarm.chunk_request import ChunkRequest, ChunkResponse
from hotplate.cache.swarm.upload_slots import UPLOAD_SLOTS
from tests.support.cache.bad_peers import BadPeer, Kind
from tests.support.cache.fakes import AgentProcess, random_bytes
from tests.support.cache.web import WebServer
from tests.support.patience import PATIENCE_S

WEIGHTS = random_bytes(6 * CHUNK_BYTES + 5, 31)
CHUNKS = [WEIGHTS[at : at + CHUNK_BYTES] for at in range(0, len(WEIGHTS), CHUNK_BYTES)]


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer({"/m": WEIGHTS}) as server:
        yield server
        server.release()


@asynccontextmanager
async def agent(data: Path, **options: Any) -> AsyncIterator[AgentClient]:
    async with run(AgentSettings(data, **options)) as url, client_at(url, **options) as client:
        yield client


@asynccontextmanager
async def client_at(url: str, token: str = "", **_: Any) -> AsyncIterator[AgentClient]:
    client = AgentClient(url, token, patience_s=0)
    try:
        yield client
    finally:
        await client.close()


def address(client: AgentClient) -> str:
    return client.url.removeprefix("http://")


async def until_met(clients: list[AgentClient], count: int) -> None:
    """Returns when each agent knows so many live peers."""
    async with asyncio.timeout(PATIENCE_S):
        for client in clients:
            await until(live_peers, client, count)


async def until(
    measured: Callable[[AgentClient], Awaitable[float]], client: AgentClient, least: float
) -> None:
    while True:
        if await measured(client) >= least:
            return
        await asyncio.sleep(0.02)


async def live_peers(client: AgentClient) -> float:
    return float(sum(peer["live"] for peer in (await client.status())["peers"]))


async def peer_bytes(client: AgentClient) -> float:
    return await metric(client, "peer_bytes_total")


async def verified_chunks(client: AgentClient) -> float:
    return await metric(client, 'chunks_total{result="verified"')


async def bans(client: AgentClient) -> float:
    return await metric(client, "bans_total")


async def metric(client: AgentClient, name: str) -> float:
    async with aiohttp.request("GET", f"{client.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(one.split()[-1]) for one in lines if one.startswith(f"hotplate_cache_{name}"))


async def test_agents_that_start_at_once_read_each_byte_once(
    tmp_path: Path, web: WebServer
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(agent(tmp_path / "0"))
        peers = (address(first),)
        others = [
            await stack.enter_async_context(agent(tmp_path / f"{number}", peers=peers))
            for number in (1, 2)
        ]
        agents = [first, *others]
        await until_met(agents, 2)  # also those that were given no address, or one
        pulls = await asyncio.gather(*(one.pull(f"{web.url}/m") for one in agents))
        assert sum(one["from_origin_bytes"] for one in pulls) == len(WEIGHTS)
        assert sum(one["from_peers_bytes"] for one in pulls) == 2 * len(WEIGHTS)
        assert web.sent_bytes == len(WEIGHTS)
        assert [(await one.verify())["bad"] for one in agents] == [[], [], []]


async def test_a_restarted_agent_gives_from_disk_what_it_had(
    tmp_path: Path, web: WebServer
) -> None:
    async with agent(tmp_path / "0") as one:
        await one.pull(f"{web.url}/m")
    async with (
        agent(tmp_path / "0") as one,
        agent(tmp_path / "1", peers=(address(one),)) as two,
    ):
        web.ways.refuses = 503
        await until_met([one, two], 1)
        pull = await two.pull(f"{web.url}/m")
        assert (pull["from_origin_bytes"], pull["from_peers_bytes"]) == (0, len(WEIGHTS))


@pytest.mark.parametrize("kind", ["lies", "stalls", "trickles"])
async def test_a_bad_peer_costs_time_and_no_byte(
    tmp_path: Path, web: WebServer, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "lies":  # a lie has to be heard, however busy the machine is
        monkeypatch.setattr("hotplate.cache.peers.chunk_client.NO_PROGRESS_S", 0.6)
        monkeypatch.setattr("hotplate.cache.swarm.peer_scores.SLOW_MIN_S", 0.6)
    with BadPeer(kind, len(WEIGHTS)) as bad:
        async with (
            agent(tmp_path / "0") as one,
            agent(tmp_path / "1", peers=(bad.address, address(one))) as two,
        ):
            await one.pull(f"{web.url}/m")
            await until_met([two], 2)
            pull = await two.pull(f"{web.url}/m")
            assert bad.asked, "nobody fell for it"
            assert (await two.verify())["bad"] == []
            assert pull["from_origin_bytes"] == 0
            assert await metric(two, "bans_total") == (1 if kind == "lies" else 0)


async def test_a_peer_that_lies_about_unknown_digests_misleads_no_node(
    tmp_path: Path, web: WebServer
) -> None:
    web.hold("/m", 0)  # which the liar alone gives, at first
    with BadPeer("deceives", len(WEIGHTS)) as bad:
        async with agent(tmp_path / "0") as one:
            first = asyncio.create_task(one.pull(f"{web.url}/m"))
            await until(verified_chunks, one, 6)
            for number in range(1, 20):
                peers = (bad.address, address(one))
                async with agent(tmp_path / f"{number}", peers=peers) as two:
                    await until_met([two], 2)
                    second = asyncio.create_task(two.pull(f"{web.url}/m"))
                    banned = asyncio.create_task(until(bans, two, 1))
                    await asyncio.wait([banned, second], return_when=asyncio.FIRST_COMPLETED)
                    if not banned.done():
                        banned.cancel()
                        continue  # it had all else before it knew the liar, and asked no other
                    web.release()
                    pulls = await asyncio.gather(first, second)
                    for client in (one, two):
                        assert (await client.verify())["bad"] == []
                        (found,) = (await client.location(f"{web.url}/m"))["chunks"]
                        assert found == [chunk_digest(part) for part in CHUNKS]
                    assert await bans(two) == 1
                    break
            else:
                pytest.fail("the liar was never contradicted")
    assert 0 in bad.asked, "nobody fell for it"
    read = sum(pull["from_origin_bytes"] for pull in pulls)
    assert len(WEIGHTS) < read <= len(WEIGHTS) + 2 * CHUNK_BYTES  # what was disputed, and in doubt


async def test_a_node_that_finds_an_agent_busy_gets_the_chunk_from_a_peer_that_it_names(
    tmp_path: Path, web: WebServer
) -> None:
    web.hold("/m", 6 * CHUNK_BYTES)  # so that the content is still on its way
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(agent(tmp_path / "0"))
        two = await stack.enter_async_context(agent(tmp_path / "1", peers=(address(one),)))
        await until_met([one, two], 1)
        pulls = [asyncio.create_task(each.pull(f"{web.url}/m")) for each in (one, two)]
        await until(verified_chunks, one, 6)
        await until(verified_chunks, two, 6)
        ((url, size_bytes, tag),) = (await one.location(f"{web.url}/m"))["files"]
        ask = ChunkRequest(Version(url, size_bytes, tag).key, 0, asker="v")
        client = ChunkClient("", asyncio.get_running_loop().time)
        stack.callback(client.close)
        view = memoryview(bytearray(CHUNK_BYTES))

        def read(peer: AgentClient) -> ChunkResponse:
            return client.ask(address(peer), ask).read(view, lambda: None, 5.0)

        async with AsyncExitStack() as others:
            for _ in range(UPLOAD_SLOTS):  # who take nothing of what they asked for
                await others.enter_async_context(raw_request(one, f"/v1/chunks/{ask.key}/0"))
            refused = await asyncio.to_thread(read, one)
        assert (refused.missed, refused.others) == (Missed.BUSY, (await own_id(two),))
        assert (await asyncio.to_thread(read, two)).missed is None
        assert view == CHUNKS[0]
        web.release()
        await asyncio.gather(*pulls)


@asynccontextmanager
async def raw_request(client: AgentClient, path: str) -> AsyncIterator[None]:
    """It has been begun to be answered, and nothing more is read."""
    host, _, port = address(client).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await reader.readuntil(b" 200 OK")
    try:
        yield
    finally:
        writer.transport.abort()


async def own_id(client: AgentClient) -> str:
    """What an agent calls itself among its peers."""
    greeting = {"id": "v", "port": 9, "members": [], "shares": {}}
    async with aiohttp.request("POST", f"{client.url}/v1/peers", json=greeting) as response:
        return str((await response.json())["id"])


async def test_an_agent_without_the_token_gets_no_chunk_and_no_peers(
    tmp_path: Path, web: WebServer
) -> None:
    async with agent(tmp_path / "0", token="t") as one:
        await one.pull(f"{web.url}/m")
        (blob,) = (await one.status())["blobs"]
        async with agent(tmp_path / "1", peers=(address(one),)) as two:
            assert (await two.status())["peers"] == [{"address": address(one), "live": False}]
        for given, status in (("", 401), ("Bearer x", 401), ("Bearer t", 200)):
            headers = {"Authorization": given} if given else {}
            url = f"{one.url}/v1/chunks/{blob['digest']}/0"
            async with aiohttp.request("GET", url, headers=headers) as response:
                assert response.status == status
                body = await response.read()
        assert body == WEIGHTS[:CHUNK_BYTES]


async def test_where_there_is_no_room_for_a_chunk_its_answer_is_not_taken_for_the_next_ones(
    tmp_path: Path, web: WebServer
) -> None:
    def refuse() -> None:
        raise NoSpace("full")

    async with agent(tmp_path / "0") as one:
        await one.pull(f"{web.url}/m")
        (blob,) = (await one.status())["blobs"]
        client = ChunkClient("", asyncio.get_running_loop().time)
        view = memoryview(bytearray(5))

        def read(index: int, prepare: Callable[[], None]) -> ChunkResponse:
            asked = client.ask(address(one), ChunkRequest(blob["digest"], index))
            return asked.read(view, prepare, 5.0)

        with pytest.raises(NoSpace):
            await asyncio.to_thread(read, 0, refuse)
        answer = await asyncio.to_thread(read, 6, lambda: None)
        client.close()
        assert (answer.missed, view.tobytes()) == (None, WEIGHTS[-5:])


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /v1/chunks/x/0 HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (
            b"GET /v1/chunks/" + b"0" * 64 + b"/0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"HTTP/1.1 404",
        ),
        (b"GET /v1/chunks/" + b"0" * 9000, b""),
        (b"GET /heal", b""),
        (b"nonsense\r\n\r\n", b""),
    ],
)
async def test_whatever_is_sent_to_the_port_is_answered_or_cut(
    tmp_path: Path, sent: bytes, answer: bytes
) -> None:
    async with agent(tmp_path / "0") as one:
        host, _, port = address(one).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for piece in (sent[:5], sent[5:]):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        try:
            got = await asyncio.wait_for(reader.read(), PATIENCE_S)
        except ConnectionResetError:
            got = b""
        assert got[: len(answer)] == answer
        writer.close()
        await one.check()


async def test_the_list_of_peers_is_read_again_when_it_changes(tmp_path: Path) -> None:
    listed = tmp_path / "peers"
    listed.write_bytes(b"not an address \xff\n")
    async with (
        agent(tmp_path / "0") as one,
        agent(tmp_path / "1", peers_from=str(listed)) as two,
    ):
        listed.write_text(f"{address(one)}\n")
        await until_met([one, two], 1)
        async with agent(
            tmp_path / "2", peers_from=f"localhost:{address(one).rpartition(':')[2]}"
        ) as three:
            await until_met([three], 2)


async def test_a_list_of_peers_that_cannot_be_read_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed, lists = tmp_path / "peers", asyncio.Queue[list[str]]()
    peers = Seeds((), str(listed), 7070, lists.put_nowait)
    watching = asyncio.create_task(peers.watch())
    async with asyncio.timeout(PATIENCE_S):
        await peers.read.wait()
        peers.read.clear()
        await peers.read.wait()
        assert caplog.text.count("cannot be read (No such file or directory); give a file") == 1
        listed.write_text("10.0.0.2:7900\n")
        assert await lists.get() == ["10.0.0.2:7900"]
    watching.cancel()


async def test_peers_behind_a_name_alone_have_the_agents_own_port() -> None:
    lists = list[list[str]]()
    peers = Seeds((), "localhost", 7070, lists.append)
    watching = asyncio.create_task(peers.watch())
    async with asyncio.timeout(PATIENCE_S):
        await peers.read.wait()
    watching.cancel()
    assert "127.0.0.1:7070" in lists[0]


@pytest.mark.parametrize("peer", ["nowhere", "host:0", "host:http", ":1"])
async def test_a_peer_that_is_no_address_is_refused(tmp_path: Path, peer: str) -> None:
    with pytest.raises(CacheError, match="HOST:PORT"):
        async with agent(tmp_path / "0", peers=(peer,)):
            pass


async def test_what_a_killed_agent_was_fetching_is_taken_over(
    tmp_path: Path, web: WebServer
) -> None:
    web.hold("/m", 2 * CHUNK_BYTES)
    async with AsyncExitStack() as stack:
        victim = stack.enter_context(AgentProcess(tmp_path / "victim", ""))
        doomed = await stack.enter_async_context(client_at(victim.url))
        agents = [
            await stack.enter_async_context(
                agent(tmp_path / f"{number}", peers=(address(doomed),), fetch_threads=1)
            )
            for number in range(2)
        ]
        await until_met(agents, 2)
        lost = asyncio.create_task(doomed.pull(f"{web.url}/m"))
        await asyncio.to_thread(web.wait_for, "/m", 2 * CHUNK_BYTES)
        pulls = [asyncio.create_task(one.pull(f"{web.url}/m")) for one in agents]
        async with asyncio.timeout(
            PATIENCE_S
        ):  # until all have what can be had, and wait for the victim
            for one in agents:
                await until(peer_bytes, one, CHUNK_BYTES)
        assert web.of("GET").count("/m") == len({span for _, _, span in web.requests if span})
        victim.kill()
        web.release()
        done = await asyncio.gather(*pulls)
        await asyncio.gather(lost, return_exceptions=True)
        assert [one["bytes"] for one in done] == [len(WEIGHTS)] * 2
        assert [(await one.verify())["bad"] for one in agents] == [[], []]
