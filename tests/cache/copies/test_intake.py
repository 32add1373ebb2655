"""How blobs come to memory and to disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hotplate.cache.copies.write_behind import READING_S
from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.manifest import CHUNK_BYTES
from hotplate.cache.tiers.arena import LARGE_BYTES
from tests.support.cache.blob_bench import BLOB, CONTENT, BlobBench, lent_bytes
from tests.support.cache.fakes import ScantMemory, blob_of, publish
from tests.support.patience import PATIENCE_S
from tests.support.small_disk import MIB, fill, small_disk


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_restart_reads_disk_and_not_the_origin(bench: BlobBench, streamed: bool) -> None:
    await bench.bring().until_on_disk()
    before = list(bench.origin.reads)
    blob_table = bench.make()
    cached = bench.start(blob_table, BLOB, "a", streamed=streamed)
    await cached.until_on_disk()
    assert await lent_bytes(blob_table, cached) == CONTENT
    assert bench.origin.reads == before


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_damaged_chunk_on_disk_is_fetched_again_alone_and_mended_in_every_tree(
    bench: BlobBench, streamed: bool
) -> None:
    await bench.bring().until_on_disk()
    path = bench.blob_table.disk.path(BLOB.digest)
    in_a_tree = bench.root / "model.safetensors"
    bench.blob_table.disk.link(BLOB.digest, in_a_tree, 0o644, 1e9)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(CHUNK_BYTES)
        file.write(bytes(100))
    path.chmod(0o444)
    bench.origin.reads.clear()
    blob_table = bench.make()
    cached = bench.start(blob_table, BLOB, "a", streamed=streamed)
    await cached.until_on_disk()
    assert bench.origin.reads == [(BLOB.digest, 1)]
    assert blob_table.mended_chunks == 1
    assert path.read_bytes() == in_a_tree.read_bytes() == CONTENT
    assert await lent_bytes(blob_table, cached) == CONTENT


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_file_cut_short_on_disk_is_fetched_again(bench: BlobBench, streamed: bool) -> None:
    await bench.bring().until_on_disk()
    path = bench.blob_table.disk.path(BLOB.digest)
    os.truncate(path, 100)
    blob_table = bench.make()
    cached = bench.start(blob_table, BLOB, "a", streamed=streamed)
    await cached.until_on_disk()
    assert len(bench.origin.reads) == 6
    assert path.read_bytes() == CONTENT
    assert await lent_bytes(blob_table, cached) == CONTENT


async def test_a_file_too_large_for_memory_is_read_from_disk_while_it_is_verified(
    bench: BlobBench,
) -> None:
    await bench.bring().until_on_disk()
    path = bench.blob_table.disk.path(BLOB.digest)
    with path.open("r+b") as file:
        file.write(bytes(100))
    bench.origin.hold(BLOB, 0)
    blob_table = bench.make(arena_bytes=0)
    cached = bench.start(blob_table, BLOB, "a")
    await cached.until(lambda: sorted(cached.done) == [1, 2])
    async with blob_table.lend(cached) as fd:
        assert os.pread(fd, 100, CHUNK_BYTES) == CONTENT[CHUNK_BYTES : CHUNK_BYTES + 100]
        bench.origin.release()
        await cached.until_on_disk()
        assert os.pread(fd, len(CONTENT), 0) == CONTENT


async def test_a_file_that_goes_to_disk_can_be_read_while_it_arrives(bench: BlobBench) -> None:
    blob_table = bench.make(arena_bytes=0)
    bench.origin.hold(BLOB, 2)
    cached = bench.start(blob_table, BLOB, "a")
    await cached.until(lambda: len(cached.done) == 2)
    async with blob_table.lend(cached) as fd:
        assert os.pread(fd, CHUNK_BYTES, 0) == CONTENT[:CHUNK_BYTES]
        bench.origin.release()
        await cached.until_on_disk()
        assert os.pread(fd, 100, 2 * CHUNK_BYTES) == CONTENT[2 * CHUNK_BYTES :]


async def test_a_reader_of_a_large_file_is_done_before_the_file_goes_to_disk(
    bench: BlobBench,
) -> None:
    content = bytes(LARGE_BYTES)
    blob = blob_of(content)
    publish(bench.root / "store", {"large": content})
    cached = bench.bring(blob)
    clock = asyncio.get_running_loop().time
    async with bench.blob_table.lend(cached):
        await cached.until(lambda: cached.complete)
        arrived_at = clock()
        await cached.until_on_disk()
    assert clock() - arrived_at >= 0.9 * READING_S


async def test_a_full_disk_leaves_the_file_readable_from_memory(bench: BlobBench) -> None:
    (bench.root / "disk").rmdir()  # stands for any disk that refuses
    cached = bench.bring()
    with pytest.raises(CacheError, match="cannot be written"):
        await cached.until_on_disk()
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    (bench.root / "disk").mkdir()


async def test_what_the_kernel_has_no_memory_for_goes_to_disk(bench: BlobBench) -> None:
    arena = ScantMemory(1 << 30)
    bench.blob_table = bench.make(arena=arena)
    cached = bench.bring()
    await cached.until_on_disk()
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
    assert arena.used_bytes == 0


async def test_a_borrowed_blob_that_memory_ends_for_fails_and_is_on_disk_the_next_time(
    bench: BlobBench,
) -> None:
    bench.blob_table = bench.make(arena=ScantMemory(1 << 30))
    bench.origin.hold(BLOB, 0)
    cached = bench.bring()
    async with bench.blob_table.lend(cached):
        bench.origin.release()
        with pytest.raises(NoSpace):
            await cached.until_on_disk()
    again = bench.bring()
    await again.until_on_disk()
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT


async def test_a_file_in_memory_is_written_as_soon_as_the_disk_has_room(
    bench: BlobBench, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small", 32 * MIB) as small:
        bench.blob_table = bench.make(disk=small / "disk")
        filler = fill(small)
        cached = bench.bring()
        with pytest.raises(NoSpace, match="free some space"):
            await cached.until_on_disk()
        async with bench.blob_table.lend(cached) as fd:
            assert os.pread(fd, len(CONTENT), 0) == CONTENT
        filler.unlink()
        await asyncio.wait_for(cached.until(lambda: cached.on_disk), PATIENCE_S)
        assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
        await bench.blob_table.close(1)
