"""What a replica may ask of the agent, how much, and what it may not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient
from hotplate.cache.errors import CacheError, TooMany
from hotplate.cache.leases import agent_socket as sockets
from hotplate.cache.leases import lending
from hotplate.cache.leases.agent_socket import AgentSocket, Door
from hotplate.cache.manifest import Manifest
from hotplate.cache.reader import open_file
from hotplate.machine.unix_address import short_path
from tests.support.as_user import __file__ as AS_USER
from tests.support.cache.fakes import publish, random_bytes
from tests.support.patience import PATIENCE_S

OURS, THEIRS = random_bytes(1000, 1), random_bytes(1000, 2)


@dataclass
class Bench:
    """An agent with a token, and two revisions with a replica each."""

    settings: AgentSettings
    client: AgentClient
    ours: Manifest
    theirs: Manifest
    our_socket: Path
    their_socket: Path

    def file(self, manifest: Manifest) -> str:
        return f"{self.settings.data_dir}/trees/{manifest.digest}/model.safetensors"

    async def read(self, agent_socket: Path, manifest: Manifest) -> bytes:
        with await asyncio.to_thread(open_file, str(agent_socket), self.file(manifest)) as file:
            await asyncio.to_thread(file.wait_all)
            return bytes(file.view)


@contextlib.asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[AgentClient]:
    async with run(settings) as url:
        client = AgentClient(url, "secret")
        yield client
        await client.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = tmp_path / "store"
    ours = publish(store, {"model.safetensors": OURS})
    theirs = publish(store, {"model.safetensors": THEIRS})
    folders = [tmp_path / "our replica", tmp_path / "their replica"]
    settings = AgentSettings(tmp_path / "data", f"file://{store}", token="secret")
    async with running(settings) as client:
        for folder, manifest in zip(folders, (ours, theirs), strict=True):
            folder.mkdir()
            await client.tree(manifest.digest, wait="all")
            await client.admit(str(folder / "agent.sock"), [manifest.digest])
        sockets = [folder / "agent.sock" for folder in folders]
        yield Bench(settings, client, ours, theirs, *sockets)


async def test_a_replica_reads_its_own_revisions_files_and_no_others(bench: Bench) -> None:
    assert await bench.read(bench.our_socket, bench.ours) == OURS
    assert os.stat(bench.our_socket).st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="is no file of a tree of this node"):
        await bench.read(bench.our_socket, bench.theirs)
    assert await bench.read(bench.their_socket, bench.theirs) == THEIRS


async def test_replicas_of_one_model_share_its_memory(bench: Bench) -> None:
    with contextlib.ExitStack() as closing:
        files = [
            await asyncio.to_thread(open_file, str(bench.our_socket), bench.file(bench.ours))
            for _ in range(4)
        ]
        for file in files:
            closing.enter_context(file)
        assert len({os.fstat(file.fd).st_ino for file in files}) == 1
        assert (await bench.client.status())["arena_bytes"] == len(OURS) + len(THEIRS)


@pytest.mark.parametrize("token", ["", "guessed"])
async def test_the_agents_own_socket_is_closed_to_replicas(bench: Bench, token: str) -> None:
    own = bench.settings.data_dir / "agent.sock"
    for request in ({"open": bench.file(bench.ours)}, {"open_url": "file:///etc/hostname"}):
        answer = await say(own, json.dumps(request | {"token": token}).encode())
        assert answer["error"]["code"] == "unauthorized"
    answer = await say(bench.our_socket, b'{"open_url": "file:///etc/hostname", "token": "secret"}')
    assert answer["error"]["code"] == "unauthorized"


async def test_a_replicas_socket_is_there_as_long_as_its_folder(bench: Bench) -> None:
    shutil.rmtree(bench.their_socket.parent)
    third = bench.our_socket.parent / "third.sock"
    await bench.client.admit(str(third), [bench.ours.digest])
    saved = json.loads((bench.settings.data_dir / "doors.json").read_bytes())
    assert set(saved) == {str(bench.our_socket), str(third)}
    with pytest.raises(CacheError, match="the agent cannot listen at"):
        await bench.client.admit(str(bench.their_socket), [bench.theirs.digest])


async def test_a_second_agent_takes_no_socket_from_the_first(bench: Bench) -> None:
    again = AgentSettings(bench.settings.data_dir, bench.settings.origin_url, token="secret")
    with pytest.raises(CacheError, match="another agent uses"):
        async with run(again):
            pass
    assert await bench.read(bench.our_socket, bench.ours) == OURS, "the first one is untouched"


async def test_doors_open_again_when_the_agent_starts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ours, theirs = (publish(store, {"model.safetensors": one}) for one in (OURS, THEIRS))
    settings = AgentSettings(tmp_path / "data", f"file://{store}", token="secret")
    path = tmp_path / "agent.sock"
    async with running(settings) as client:
        for manifest in (ours, theirs):
            await client.tree(manifest.digest, wait="all")
        await client.admit(str(path), [ours.digest])
    async with running(settings) as client:
        bench = Bench(settings, client, ours, theirs, path, path)
        assert await bench.read(path, ours) == OURS
        with pytest.raises(OSError, match="is no file of a tree"):
            await bench.read(path, theirs)


async def test_a_replica_that_opens_without_end_is_refused_and_starves_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 64
    monkeypatch.setattr(lending, "MOST_CONNECTIONS", limit)
    await bench.client.admit(str(bench.our_socket), [bench.ours.digest])
    request = json.dumps({"open": bench.file(bench.ours)}).encode()
    with contextlib.ExitStack() as held:
        for _ in range(limit):
            held.enter_context(connected(bench.our_socket)).sendall(request + b"\n")
        refused = await say(bench.our_socket, request)
        assert refused["error"]["code"] == "too_many"
        assert "64 files are open" in refused["error"]["message"]
        assert await bench.read(bench.their_socket, bench.theirs) == THEIRS
    async with asyncio.timeout(PATIENCE_S):
        while "error" in await say(bench.our_socket, request):  # noqa: ASYNC110 (the agent tells no one)
            await asyncio.sleep(0.01)


async def test_a_connection_without_a_request_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "FIRST_LINE_S", 0.1)
    assert (await say(bench.our_socket, b'{"open"', end=b""))["error"]["code"] == "too_many"


@pytest.mark.parametrize("line", [b"[" * 60_000, b"x" * 100_000, b'{"open": 1e999, "a": {}}'])
async def test_monstrous_lines_are_refused(bench: Bench, line: bytes) -> None:
    assert (await say(bench.our_socket, line))["error"]["code"] in (
        "bad_request",
        "unknown_manifest",
    )


async def test_a_flood_of_wishes_is_read_slowly_and_others_are_served_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LINES_PER_S", 10)
    monkeypatch.setattr(sockets, "LINES_BURST", 20)
    await bench.client.admit(str(bench.our_socket), [bench.ours.digest])
    loop = asyncio.get_running_loop()
    with connected(bench.our_socket) as flood:
        flood.setblocking(False)
        flood.sendall(json.dumps({"open": bench.file(bench.ours)}).encode() + b"\n")
        with pytest.raises(TimeoutError):  # the socket's buffer fills: hardly anything is read
            async with asyncio.timeout(0.5):
                while True:
                    await loop.sock_sendall(flood, b'{"want": [0]}\n' * 1000)
        sent_s = loop.time()
        assert await bench.read(bench.their_socket, bench.theirs) == THEIRS
        assert loop.time() - sent_s < PATIENCE_S


async def test_lines_over_the_rate_are_read_later(tmp_path: Path) -> None:
    agent_socket, loop = (
        AgentSocket(tmp_path / "agent_socket", Door(None), limit=1),
        asyncio.get_running_loop(),
    )
    began_s = loop.time()
    await agent_socket.pace(5100 << 10)
    assert loop.time() - began_s >= 0.1, "beyond a burst of 5000 lines or KiB, 1000 a second"
    agent_socket.close()


async def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    agent_socket = AgentSocket(tmp_path / "agent_socket", Door(None), limit=1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(bytes(sockets.LINE_BYTES))
        theirs.send(b"x")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="a line of more than 65536 bytes"):
            await sockets.LineReader(ours, agent_socket).receive()
    agent_socket.close()


def test_a_socket_counts_its_connections(tmp_path: Path) -> None:
    agent_socket = AgentSocket(tmp_path / "agent_socket", Door(None), limit=1)
    refusal = pytest.raises(TooMany, match=r"1 files are open at .*agent_socket already")
    with agent_socket.entered(), refusal, agent_socket.entered():
        pass
    with agent_socket.entered():
        pass
    agent_socket.close()
    assert not agent_socket.there and not agent_socket.path.exists()


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection, short_path(path) as short:
        connection.connect(short)
        yield connection


async def say(path: Path, line: bytes, end: bytes = b"\n") -> dict[str, dict[str, str]]:
    """The first line of the answer."""
    with short_path(path) as short:
        reading, writing = await asyncio.open_unix_connection(short)
    writing.write(line + end)
    try:
        answer: dict[str, dict[str, str]] = json.loads(
            await asyncio.wait_for(reading.readline(), PATIENCE_S)
        )
        return answer
    finally:
        writing.close()


async def test_what_a_replica_puts_in_the_place_of_its_door_is_not_followed(
    tmp_path: Path,
) -> None:
    """The agent opens it again at its start, and the engine may ask for it at any time."""
    victim = tmp_path / "victim"
    victim.write_text("the operator's")
    victim.chmod(0o640)
    folder = tmp_path / "replica"
    folder.mkdir()
    (folder / "agent.sock").symlink_to(victim)
    agent_socket = AgentSocket(folder / "agent.sock", Door(None), limit=1)
    assert (folder / "agent.sock").is_socket() and not (folder / "agent.sock").is_symlink()
    (folder / "agent.sock").unlink()
    (folder / "agent.sock").symlink_to(victim)
    assert not agent_socket.there
    agent_socket.close()
    assert victim.read_text() == "the operator's" and victim.stat().st_mode & 0o777 == 0o640
    assert (folder / "agent.sock").is_symlink(), "which is not ours to remove"


async def test_a_file_where_a_socket_is_asked_for_stays(bench: Bench) -> None:
    notes = bench.our_socket.parent / "notes.txt"
    notes.write_text("somebody's")
    with pytest.raises(CacheError, match=r"cannot listen at .* \(what has that name is no socket"):
        await bench.client.admit(str(notes), [])
    assert notes.read_text() == "somebody's"


async def test_a_folder_that_is_a_link_gets_no_socket(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "replica").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        AgentSocket(tmp_path / "replica" / "agent.sock", Door(None), limit=1)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a folder away")
async def test_a_socket_lets_in_the_user_that_owns_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "replica"
    folder.mkdir()
    os.chown(folder, 54_321, 54_321)
    agent_socket = AgentSocket(folder / "agent.sock", Door(None), limit=1)
    about = (folder / "agent.sock").stat()
    assert (about.st_uid, about.st_mode & 0o777) == (54_321, 0o600)
    # It may let others pass to its agent_socket; they are not let in.
    folder.chmod(0o755)
    (folder / "agent.sock").chmod(0o666)
    loop = asyncio.get_running_loop()
    for user, expected in ((0, True), (54_321, True), (54_322, False)):
        caller = await asyncio.create_subprocess_exec(
            *(sys.executable, AS_USER, str(user), sys.prefix, sys.base_prefix, str(folder), "--"),
            *(sys.executable, "-c", CALLER, str(folder / "agent.sock")),
            stdin=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            connection, _ = await loop.sock_accept(agent_socket.listener)
        with connection:
            assert agent_socket.lets_in(connection) is expected, user
        await caller.communicate(b"")
        assert caller.returncode == 0
    agent_socket.close()


CALLER = """
import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
connection = socket.socket(socket.AF_UNIX)
connection.connect("agent.sock")
sys.stdin.read()
"""
