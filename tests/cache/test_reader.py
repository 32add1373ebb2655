"""The replica's side of the Unix socket, against an agent in this process."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotplate.cache import reader
from hotplate.cache.agent import AgentSettings, run
from hotplate.cache.client import AgentClient, TreeInfo
from hotplate.cache.manifest import CHUNK_BYTES, Manifest
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.reader import RemoteFile, open_file
from hotplate.machine.unix_address import short_path
from tests.support.cache.fakes import (
    OriginServer,
    PacedOrigin,
    blob_of,
    content,
    publish,
    random_bytes,
)
from tests.support.patience import PATIENCE_S

WEIGHTS = random_bytes(3 * CHUNK_BYTES - 5, 5)
BLOB = blob_of(WEIGHTS)


@dataclass
class Bench:
    origin: PacedOrigin
    client: AgentClient
    data: Path
    manifest: Manifest
    _opened: list[RemoteFile]

    async def tree(self) -> TreeInfo:
        return await self.client.tree(self.manifest.digest)

    async def leases(self) -> int:
        return sum(blob["leases"] for blob in (await self.client.status())["blobs"])

    async def until_no_lease(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.leases():  # noqa: ASYNC110 (nobody is told of another's lease)
                await asyncio.sleep(0.01)

    async def open(self, path: str = "model.safetensors") -> RemoteFile:
        root = (await self.tree()).root
        return await self.open_at(f"{root}/{path}")

    async def open_at(self, path: str) -> RemoteFile:
        file = await asyncio.to_thread(open_file, str(self.data / "agent.sock"), path)
        self._opened.append(file)
        return file


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = tmp_path / "store"
    files = {"model.safetensors": WEIGHTS, "config.json": b"{}", "none.safetensors": b""}
    manifest = publish(store, files)
    origin = PacedOrigin(FsspecOrigin(f"file://{store}"))
    server = OriginServer(store, origin)
    # longer than a socket's address may be
    data = tmp_path / ("d" * 120)
    opened: list[RemoteFile] = []
    async with run(AgentSettings(data, server.url, stall_s=5)) as url:
        client = AgentClient(url)
        yield Bench(origin, client, data, manifest, opened)
        origin.release()
        for file in opened:
            file.close()
        await client.close()
    server.close()


async def in_thread(function: object, *arguments: object) -> None:
    assert callable(function)
    await asyncio.wait_for(asyncio.to_thread(function, *arguments), PATIENCE_S)


async def test_a_chunk_is_readable_before_the_last_byte_arrived(bench: Bench) -> None:
    bench.origin.hold(BLOB, 1, 2)
    file = await bench.open()
    await in_thread(file.wait, 0, CHUNK_BYTES)
    assert file.size_bytes == len(WEIGHTS)
    assert file.view[:CHUNK_BYTES] == WEIGHTS[:CHUNK_BYTES]
    assert not file.complete
    bench.origin.release()
    await in_thread(file.wait_all)
    assert file.complete and file.view == WEIGHTS


async def test_a_chunk_is_not_readable_before_it_is_verified(bench: Bench) -> None:
    bench.origin.corrupt(BLOB, 1, times=1)
    bench.origin.hold(BLOB, 1)
    file = await bench.open()
    waiting = asyncio.create_task(in_thread(file.wait, CHUNK_BYTES, CHUNK_BYTES + 1))
    await in_thread(file.wait, 0, CHUNK_BYTES)
    assert not waiting.done()
    bench.origin.release()
    await waiting
    assert file.view[CHUNK_BYTES : CHUNK_BYTES + 99] == WEIGHTS[CHUNK_BYTES : CHUNK_BYTES + 99]
    assert bench.origin.reads.count((BLOB.digest, 1)) == 2


async def test_waiting_for_part_of_a_chunk_waits_for_the_chunk(bench: Bench) -> None:
    bench.origin.hold(BLOB, 2)
    file = await bench.open()
    await in_thread(file.wait, 0, 2 * CHUNK_BYTES)
    await in_thread(file.wait, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES)  # nothing is there at once
    waiting = asyncio.create_task(in_thread(file.wait, CHUNK_BYTES, 2 * CHUNK_BYTES + 1))
    await asyncio.to_thread(bench.origin.wait_for_read, BLOB, 2)
    assert not waiting.done()
    bench.origin.release()
    await waiting


async def test_writing_into_a_view_changes_no_other_view(bench: Bench) -> None:
    first, second = await bench.open(), await bench.open()
    await in_thread(first.wait_all)
    await in_thread(second.wait_all)
    first.view[0] ^= 1
    assert first.view != WEIGHTS and second.view == WEIGHTS


async def test_the_path_cannot_be_read_until_it_is_whole(bench: Bench) -> None:
    bench.origin.hold(BLOB, 2)
    file = await bench.open()
    await in_thread(file.wait, 0, 1)
    assert content(file.path) is None
    bench.origin.release()
    await in_thread(file.wait_linked)
    assert content(file.path) == WEIGHTS


async def test_a_linked_file_opens_complete(bench: Bench) -> None:
    await bench.client.tree(bench.manifest.digest, wait="all")
    file = await bench.open()
    await in_thread(file.wait_linked)
    await in_thread(file.wait, 0, len(WEIGHTS))
    assert file.view == WEIGHTS


async def test_a_file_that_is_not_streamed_opens_too(bench: Bench) -> None:
    file = await bench.open("config.json")
    assert file.complete and bytes(file.view) == b"{}"


async def test_a_file_of_no_bytes_is_complete(bench: Bench) -> None:
    file = await bench.open("none.safetensors")
    assert (file.size_bytes, file.complete, bytes(file.view)) == (0, True, b"")
    await in_thread(file.wait_linked)


async def test_a_link_from_elsewhere_leads_here(bench: Bench, tmp_path: Path) -> None:
    link = tmp_path / "model"
    link.symlink_to((await bench.tree()).root)
    file = await bench.open_at(f"{link}/model.safetensors")
    await in_thread(file.wait_all)
    assert file.view == WEIGHTS


async def test_a_corrupt_origin_reaches_the_reader_as_a_sentence(bench: Bench) -> None:
    bench.origin.corrupt(BLOB, 1, times=99)
    file = await bench.open()
    with pytest.raises(OSError, match=r"model.safetensors: chunk 1 of 3 was corrupt 4 times"):
        await in_thread(file.wait_all)
    assert not file.complete
    assert content(file.path) is None


@pytest.mark.parametrize("path", ["/etc/passwd", "{root}/nothing", "{root}", "{root}/../x/y"])
async def test_a_path_outside_the_trees_is_refused(bench: Bench, path: str) -> None:
    root = (await bench.tree()).root
    with pytest.raises(OSError, match="is no file of a tree of this node"):
        await bench.open_at(path.format(root=root))


async def test_the_socket_is_for_its_owner_only(bench: Bench) -> None:
    assert os.stat(bench.data / "agent.sock").st_mode & 0o777 == 0o600


async def test_an_open_file_is_a_lease_until_it_is_closed(bench: Bench) -> None:
    file = await bench.open()
    await in_thread(file.wait_linked)
    assert await bench.leases() == 1
    file.close()
    await bench.until_no_lease()
    assert file.view == WEIGHTS  # the bytes stay with whoever refers to them


async def test_the_lease_of_a_reader_that_is_killed_ends_with_it(bench: Bench) -> None:
    model = f"{(await bench.tree()).root}/model.safetensors"
    program = "from hotplate.cache.reader import open_file; import sys, time\n"
    program += "file = open_file(*sys.argv[1:]); print('open', flush=True); time.sleep(60)"
    reading = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(bench.data / "agent.sock"), model),
        stdout=asyncio.subprocess.PIPE,
    )
    assert reading.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        assert await reading.stdout.readline() == b"open\n"
    assert await bench.leases() == 1
    reading.kill()
    await reading.wait()
    await bench.until_no_lease()


async def test_nonsense_is_answered_and_the_agent_lives(bench: Bench) -> None:
    for line in (b"\n", b"[]\n", b"{}\n", b'{"open": 5}\n', b"\xff\n"):
        with short_path(bench.data / "agent.sock") as path:
            reading, writing = await asyncio.open_unix_connection(path)
        writing.write(line)
        answer = await asyncio.wait_for(reading.read(), PATIENCE_S)
        writing.close()
        assert answer.startswith(b'{"error": {"code": ')
    file = await bench.open()
    await in_thread(file.wait_all)


def test_no_agent_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        open_file(str(tmp_path / "agent.sock"), "/x")


def test_the_reader_needs_only_the_standard_library_of_python_3_9() -> None:
    source = Path(reader.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 9))
    modules = {name.partition(".")[0] for node in ast.walk(tree) for name in _imported(node)}
    assert modules <= set(sys.stdlib_module_names)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or "."]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
