"""The agent as a process of its own: what it promises over restarts, kills and damage."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from hotplate.cache.errors import CacheError, ChunkCorrupt, OriginUnavailable, UnknownManifest
from hotplate.cache.file_view.agent_side import FileView
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.reader import open_file
from tests.support.cache.agent_bench import BLOB, SHARED, WEIGHTS, AgentBench, client_at
from tests.support.cache.fakes import blob_of, content, exists
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.processor import cpu_s

WATCHED_S = 0.5


async def test_a_tree_is_ready_before_its_streamed_files_are(agents: AgentBench) -> None:
    agents.origin.hold(BLOB, 0)
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            tree = await client.tree(agents.first.digest)
            root = tree.root
            assert not tree.complete and tree.bytes_verified < tree.bytes_total
            assert content(root, "vocab.bin") == SHARED
            assert content(root, "model.safetensors") is None
            assert exists(root, "empty")
            agents.origin.release()
            tree = await client.tree(agents.first.digest, wait="all")
            assert tree.complete and tree.bytes_verified == tree.bytes_total
            assert content(root, "model.safetensors") == WEIGHTS


async def test_each_byte_is_fetched_once_for_all_trees_and_callers(agents: AgentBench) -> None:
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            both = (agents.first.digest, agents.second.digest)
            await asyncio.gather(*(client.tree(one, wait="all") for one in both * 3))
            status = await client.status()
    assert len(agents.origin.reads) == len(set(agents.origin.reads))
    assert status["origin_bytes"] == agents.first.size_bytes
    assert status["disk_bytes"] == agents.first.size_bytes
    assert status["arena_bytes"] == len(WEIGHTS)
    assert [tree["complete"] for tree in status["trees"]] == [True, True]


async def test_a_restart_reads_no_byte_from_the_origin(agents: AgentBench) -> None:
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            root = (await client.tree(agents.first.digest, wait="all")).root
        assert agent.terminate() == 0
    agents.server.close()
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            # A replica that outlived the agent opens its file before the tree is asked for.
            with await asyncio.to_thread(
                open_file, agent.socket, f"{root}/model.safetensors"
            ) as file:
                await asyncio.to_thread(file.wait_all)
                assert file.view == WEIGHTS
            tree = await client.tree(agents.first.digest, wait="all")
            assert (await client.status())["origin_bytes"] == 0
            assert content(tree.root, "model.safetensors") == WEIGHTS


async def test_a_stopping_agent_flushes_what_is_complete(agents: AgentBench) -> None:
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            root = (await client.tree(agents.first.digest)).root
            file = await asyncio.to_thread(open_file, agent.socket, f"{root}/model.safetensors")
            await asyncio.to_thread(file.wait_all)
        assert agent.terminate() == 0
    assert (agents.folder / "data" / "disk" / BLOB.digest).read_bytes() == WEIGHTS
    assert file.complete and file.view == WEIGHTS  # even without an agent
    file.wait(0, len(WEIGHTS))
    file.close()


async def test_an_agent_killed_while_fetching_completes_after_its_restart(
    agents: AgentBench,
) -> None:
    agents.origin.hold(BLOB, 1)
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            root = (await client.tree(agents.first.digest)).root
            file = await asyncio.to_thread(open_file, agent.socket, f"{root}/model.safetensors")
            await asyncio.to_thread(file.wait, 0, CHUNK_BYTES)
            await asyncio.to_thread(agents.origin.wait_for_read, BLOB, 1)
            tree = await client.progress(agents.first.digest)
            assert not tree.complete and tree.bytes_verified < tree.bytes_total
            agent.kill()
            with pytest.raises(OSError, match="the node's agent went away"):
                await asyncio.to_thread(file.wait_all)
            file.close()
    assert content(root, "model.safetensors") is None
    agents.origin.release()
    fetched = len(agents.origin.reads)
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            tree = await client.tree(agents.first.digest, wait="all")
            assert tree.complete and tree.bytes_verified == tree.bytes_total
    assert content(root, "model.safetensors") == WEIGHTS
    again = agents.origin.reads[fetched:]
    assert {digest for digest, _ in again} == {BLOB.digest}  # all else was on disk


async def test_a_damaged_disk_is_mended_from_the_origin(agents: AgentBench) -> None:
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            root = (await client.tree(agents.first.digest, wait="all")).root
    for damaged in (WEIGHTS, SHARED):
        path = agents.folder / "data" / "disk" / blob_of(damaged).digest
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.write(b"damage")
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            await client.tree(agents.first.digest, wait="all")
    assert content(root, "model.safetensors") == WEIGHTS
    assert content(root, "vocab.bin") == SHARED


async def test_a_corrupt_origin_is_named_and_nothing_of_it_exposed(agents: AgentBench) -> None:
    agents.origin.corrupt(blob_of(SHARED), 1, times=99)
    async with agents.client() as client:
        with pytest.raises(ChunkCorrupt, match=r"vocab.bin: chunk 1 of 2 was corrupt 4 times"):
            await client.tree(agents.first.digest)
        with pytest.raises(ChunkCorrupt):
            await client.progress(agents.first.digest)
        assert os.listdir(agents.folder / "data" / "trees") == []
        agents.origin.corrupt(blob_of(SHARED), 1, times=0)
        assert (await client.tree(agents.first.digest, wait="all")).complete


async def test_an_origin_that_is_down_is_named(agents: AgentBench) -> None:
    agents.origin.failure = CacheError("down")
    async with agents.client(stall_s=0.3) as client:
        with pytest.raises(OriginUnavailable, match=r"nothing new arrived in 0.3 s"):
            await client.tree(agents.first.digest)
        with pytest.raises(UnknownManifest, match="push the bento or model again"):
            await client.tree("0" * 64)


async def test_a_tree_goes_only_when_it_was_not_asked_for_lately(agents: AgentBench) -> None:
    digest = agents.first.digest
    async with agents.client() as client:
        await client.tree(digest, wait="all")
        assert not await client.delete(digest, idle_s=60)
        assert (await client.idle_s())[digest] < 60
        assert await client.delete(digest, idle_s=0)
        assert await client.idle_s() == {}
        assert (await client.tree(digest, wait="all")).complete
    async with agents.client() as client:  # one that was kept counts as asked for at the start
        assert (await client.idle_s())[digest] < 60


async def test_a_deleted_tree_leaves_what_others_share(agents: AgentBench) -> None:
    async with agents.client() as client:
        first = await client.tree(agents.first.digest, wait="all")
        second = await client.tree(agents.second.digest, wait="all")
        await client.delete(agents.first.digest)
        assert not exists(first.root)
        assert content(second.root, "other.safetensors") == WEIGHTS
        status = await client.status()
        assert status["disk_bytes"] == agents.second.size_bytes
        await client.delete(agents.second.digest)
        status = await client.status()
        assert (status["disk_bytes"], status["arena_bytes"], status["blobs"]) == (0, 0, [])
        with pytest.raises(UnknownManifest):
            await client.delete(agents.second.digest)


async def test_a_damaged_manifest_costs_no_blob(agents: AgentBench) -> None:
    async with agents.client() as client:
        root = (await client.tree(agents.first.digest, wait="all")).root
    path = agents.folder / "data" / "manifests" / f"{agents.first.digest}.json"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"damage")
    agents.origin.reads.clear()
    async with agents.client() as client:
        assert content(root, "model.safetensors") == WEIGHTS, "replicas may be reading it"
        assert (await client.tree(agents.first.digest, wait="all")).complete
    assert agents.origin.reads == []
    assert content(path) == agents.first.to_bytes()


def test_a_second_agent_on_the_same_folder_refuses(agents: AgentBench) -> None:
    with agents.agent() as first, agents.agent() as second:
        assert first.url and not second.url
        last_line = second.refusal.strip().splitlines()[-1]
        assert "another agent uses" in last_line and "choose another data folder" in last_line


async def test_an_agent_without_descriptors_says_so_and_recovers(agents: AgentBench) -> None:
    with agents.agent() as agent:
        pid = agent.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        await until_idle(pid)  # what it opens at its start would leave room
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (numbers_up_to(3, pid), limits[1]))
        refusals: list[str] = []
        tree = None
        async with client_at(agent.url, patience_s=1.0) as client, asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(CacheError, TimeoutError):
                async with asyncio.timeout(0.5):  # it tries for 30 s
                    await client.tree(agents.first.digest, wait="all")
            assert (await client.status())["origin_bytes"] < agents.first.size_bytes
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            while tree is None:  # it may first report why the file was not on disk
                try:
                    tree = await client.tree(agents.first.digest, wait="all")
                except CacheError as error:
                    refusals.append(str(error))
                    await asyncio.sleep(0.1)
        assert all("Too many open files" in sentence for sentence in refusals)
        weights = await asyncio.to_thread(Path(tree.root, "model.safetensors").read_bytes)
        assert weights == WEIGHTS


async def until_idle(pid: int) -> None:
    """Returns when it has had the same descriptors for a while."""
    known, same = descriptors(pid), 0
    while same < 20:
        await asyncio.sleep(0.02)
        now = descriptors(pid)
        known, same = now, same + 1 if now == known else 0


def numbers_up_to(free: int, pid: int) -> int:
    """The limit of descriptors' numbers below which so many are free."""
    taken = descriptors(pid)
    unused = (number for number in itertools.count() if number not in taken)
    return next(itertools.islice(unused, free, None))


def descriptors(pid: int) -> set[int]:
    return set(map(int, os.listdir(f"/proc/{pid}/fd")))


async def test_an_idle_agent_uses_no_processor_time(agents: AgentBench) -> None:
    with agents.agent() as agent:
        async with client_at(agent.url) as client:
            await client.tree(agents.first.digest, wait="all")
        # Writes to disk and greetings may end a little later; a busy agent would spend it for ever.
        assert min([await spent_s(agent.process.pid) for _ in range(3)]) < 0.01 * WATCHED_S


async def test_half_a_request_costs_no_processor_time(agents: AgentBench) -> None:
    with agents.agent() as agent, contextlib.ExitStack() as stack:
        host, _, port = agent.url.removeprefix("http://").rpartition(":")
        for _ in range(50):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(b"GET /v1/chu")
        assert min([await spent_s(agent.process.pid) for _ in range(3)]) < 0.05 * WATCHED_S
        connection.sendall(b"nks/x/0 HTTP/1.1\r\n\r\n")
        assert (await asyncio.to_thread(connection.recv, 12)) == b"HTTP/1.1 400"


async def spent_s(pid: int) -> float:
    before = cpu_s(pid)
    await asyncio.sleep(WATCHED_S)
    return cpu_s(pid) - before


async def test_an_agent_that_is_gone_is_named(agents: AgentBench) -> None:
    with agents.agent() as agent:
        agent.kill()
        async with client_at(agent.url, patience_s=0.3) as client:
            with pytest.raises(CacheError, match="does not answer"):
                await client.status()


async def test_an_agent_that_comes_back_is_asked_again(agents: AgentBench) -> None:
    port = free_port()
    async with agents.client(port=port) as client:
        url = client.url
    async with client_at(url) as client:
        asked = asyncio.create_task(client.tree(agents.first.digest, wait="all"))
        await asyncio.sleep(0.3)
        async with agents.client(port=port):
            assert (await asked).complete


async def test_a_start_that_fails_half_way_says_why_and_leaves_nothing_behind(
    agents: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, threads = asyncio.all_tasks(), set(threading.enumerate())

    async def fail(view: FileView) -> None:
        raise OSError("the view cannot be started")

    with monkeypatch.context() as patched:
        patched.setattr(FileView, "start", fail)
        with pytest.raises(OSError, match="the view cannot be started"):
            async with agents.client():
                pass
    assert asyncio.all_tasks() == before
    async with asyncio.timeout(PATIENCE_S):
        while fetching := [one for one in set(threading.enumerate()) - threads if _fetches(one)]:
            await asyncio.to_thread(fetching[0].join)
    async with agents.client() as client:  # the folder and its socket are free again
        assert (await client.tree(agents.first.digest, wait="all")).complete


async def test_a_list_of_peers_that_does_not_come_holds_up_a_start_for_a_while_only(
    agents: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotplate.cache.agent.PEERS_S", 0.1)
    before = asyncio.all_tasks()
    never_written = agents.folder / "peers"
    os.mkfifo(never_written)
    try:
        async with agents.client(peers_from=str(never_written)):
            waiting = [str(one.get_coro()) for one in asyncio.all_tasks() - before]
            assert not [one for one in waiting if "Event.wait" in one]
    finally:
        os.close(os.open(never_written, os.O_RDWR | os.O_NONBLOCK))  # its reader goes on


def _fetches(thread: threading.Thread) -> bool:
    return thread.name.startswith("fetch-")
