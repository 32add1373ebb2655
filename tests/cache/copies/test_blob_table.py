from __future__ import annotations

import asyncio
import functools
import gc
import os
import weakref
from collections.abc import AsyncIterator, Callable, Set
from dataclasses import dataclass
from pathlib import Path

import pytest

from hotplate.cache.copies.blob_table import BlobTable
from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.copies.write_behind import READING_S
from hotplate.cache.errors import (
    CacheError,
    ChunkCorrupt,
    NoSpace,
    OriginUnavailable,
    UnknownBlob,
)
from hotplate.cache.fetching.contents import Contents
from hotplate.cache.fetching.fetcher import Fetcher
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Draft
from hotplate.cache.metrics import Metrics
from hotplate.cache.origins.blob_source import FsspecOrigin
from hotplate.cache.tiers.arena import LARGE_BYTES, Arena
from hotplate.cache.tiers.disk import DiskTier
from tests.support.cache.fakes import PacedOrigin, ScantMemory, blob_of, publish, random_bytes
from tests.support.patience import PATIENCE_S
from tests.support.small_disk import MIB, fill, small_disk

CONTENT = random_bytes(2 * CHUNK_BYTES + 100, 3)
OTHER = random_bytes(CHUNK_BYTES + 100, 4)
BLOB, SECOND = blob_of(CONTENT), blob_of(OTHER)


@dataclass
class Bench:
    """Holdings over a folder of two blobs."""

    origin: PacedOrigin
    metrics: Metrics
    root: Path
    make: Callable[..., BlobTable]
    blob_table: BlobTable

    def bring(self, blob: Blob = BLOB, streamed: bool = True) -> CachedBlob:
        return self.start(self.blob_table, blob, "model.safetensors", streamed)

    def start(
        self, blob_table: BlobTable, blob: Blob, name: str, streamed: bool = True
    ) -> CachedBlob:
        origin = self.origin.source(blob)
        return blob_table.bring(OriginFile(blob, origin, blob.digest, name), streamed)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    publish(tmp_path / "store", {"a": CONTENT, "b": OTHER})
    origin = PacedOrigin(FsspecOrigin(f"file://{tmp_path}/store"))
    metrics = Metrics()
    made: list[BlobTable] = []

    def make(
        arena_bytes: int = 1 << 30,
        stall_s: float = 30.0,
        threads: int = 2,
        arena: Arena | None = None,
        disk: Path = tmp_path / "disk",
        disk_bytes: int = 0,
        wanted: Callable[[], Set[str]] = frozenset,
    ) -> BlobTable:
        clock = asyncio.get_running_loop().time
        contents = Contents(threads, clock)
        Fetcher(threads, contents, clock, metrics)
        arena = arena or Arena(arena_bytes)
        tier = DiskTier(disk, limit_bytes=disk_bytes)
        made.append(BlobTable(arena, tier, contents, stall_s, wanted))
        return made[-1]

    yield Bench(origin, metrics, tmp_path, make, make())
    origin.release()
    for blob_table in made:
        await blob_table.close(5)
        assert all(cached.leases == 0 for cached in blob_table)


async def lent_bytes(blob_table: BlobTable, cached: CachedBlob) -> bytes:
    async with blob_table.lend(cached) as fd:
        return os.pread(fd, cached.content.size_bytes, 0)


async def test_what_was_fetched_is_held_on_to_by_no_thread_that_waits_for_work(
    bench: Bench,
) -> None:
    bench.origin.hold(BLOB, 0, 1, 2)
    bench.blob_table = bench.make(threads=4)  # one more than there are chunks: it finds none
    cached = bench.bring(streamed=False)
    for index in range(3):
        await asyncio.to_thread(bench.origin.wait_for_read, BLOB, index)
    assert cached.fetch is not None
    fetch = weakref.ref(cached.fetch)
    bench.origin.release()
    await cached.until_on_disk()
    async with asyncio.timeout(PATIENCE_S):
        while fetch() is not None:
            gc.collect()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_blob_arrives_verified_and_on_disk(bench: Bench, streamed: bool) -> None:
    cached = bench.bring(streamed=streamed)
    await cached.until_on_disk()
    assert cached.in_arena == streamed
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    assert sorted(cached.done) == [0, 1, 2] and cached.verified_bytes == len(CONTENT)


async def test_many_who_want_a_blob_fetch_it_once(bench: Bench) -> None:
    found = {id(bench.bring(streamed=number % 2 == 0)) for number in range(9)}
    await bench.bring().until_on_disk()
    assert len(found) == 1
    assert sorted(bench.origin.reads) == [(BLOB.digest, index) for index in range(3)]


async def test_a_chunk_counts_only_after_its_digest_was_right(bench: Bench) -> None:
    bench.origin.corrupt(BLOB, 1, times=2)
    cached = bench.bring()
    await cached.until_on_disk()
    assert bench.origin.reads.count((BLOB.digest, 1)) == 3
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    found = bench.metrics.registry.get_sample_value
    assert found("hotplate_cache_chunks_total", {"source": "origin", "result": "corrupt"}) == 2
    assert found("hotplate_cache_chunks_total", {"source": "origin", "result": "verified"}) == 3


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_corrupt_origin_exposes_nothing(bench: Bench, streamed: bool) -> None:
    bench.origin.corrupt(BLOB, 1, times=9)
    cached = bench.bring(streamed=streamed)
    with pytest.raises(ChunkCorrupt, match=r"model.safetensors: chunk 1 of 3 was corrupt 4 times"):
        await cached.until_on_disk()
    assert 1 not in cached.done
    assert list((bench.root / "disk").iterdir()) == []
    assert bench.blob_table.arena.used_bytes == 0


async def test_what_failed_is_tried_anew_when_asked_again(bench: Bench) -> None:
    bench.origin.corrupt(BLOB, 1, times=4)
    with pytest.raises(ChunkCorrupt):
        await bench.bring().until_on_disk()
    await bench.bring().until_on_disk()


async def test_an_unknown_blob_fails_at_once(bench: Bench) -> None:
    with pytest.raises(UnknownBlob):
        await bench.bring(blob_of(b"never pushed")).until_on_disk()


async def test_an_origin_that_hangs_fails_the_blob_and_not_the_agent(bench: Bench) -> None:
    blob_table = bench.make(stall_s=0.5)
    bench.origin.hold(BLOB, 1)
    cached = bench.start(blob_table, BLOB, "model.safetensors")
    sentence = r"nothing new arrived in 0.5 s, [0-2] of 3 chunks are here"
    with pytest.raises(OriginUnavailable, match=sentence):
        await cached.until_on_disk()
    second = bench.start(blob_table, SECOND, "b", streamed=False)
    await second.until_on_disk()


async def test_an_origin_that_comes_back_in_time_is_no_error(bench: Bench) -> None:
    bench.origin.failure = OriginUnavailable("down")
    cached = bench.bring()
    await asyncio.to_thread(bench.origin.wait_for_read, BLOB, 0)
    bench.origin.failure = None
    await cached.until_on_disk()


async def test_what_a_reader_wants_is_fetched_first(bench: Bench) -> None:
    blob_table = bench.make(threads=1)
    bench.origin.hold(BLOB, 0)
    first = bench.start(blob_table, BLOB, "a")
    await asyncio.to_thread(bench.origin.wait_for_read, BLOB, 0)  # the one thread is busy
    second = bench.start(blob_table, SECOND, "b")
    await second.until(lambda: second.place is not None)
    blob_table.want(second, [1])
    bench.origin.release()
    await asyncio.gather(first.until_on_disk(), second.until_on_disk())
    assert bench.origin.reads[1] == (SECOND.digest, 1)


async def test_a_small_file_waits_for_no_large_files_chunks(bench: Bench) -> None:
    blob_table = bench.make(threads=1)
    small = next(iter(publish(bench.root / "store", {"c": b"{}"}).blobs()))
    bench.origin.hold(BLOB, 0, 1, 2)
    bench.origin.hold(SECOND, 0)
    large = bench.start(blob_table, BLOB, "model.safetensors")
    await asyncio.to_thread(bench.origin.wait_for_read, BLOB, 0)
    pressing = bench.start(blob_table, SECOND, "libtorch.so", streamed=False)
    await asyncio.to_thread(bench.origin.wait_for_read, SECOND, 0)
    config = bench.start(blob_table, small, "config.json", streamed=False)
    await config.until_on_disk()
    assert not large.done and not pressing.done
    bench.origin.release()
    await asyncio.gather(large.until_on_disk(), pressing.until_on_disk())


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_restart_reads_disk_and_not_the_origin(bench: Bench, streamed: bool) -> None:
    await bench.bring().until_on_disk()
    before = list(bench.origin.reads)
    blob_table = bench.make()
    cached = bench.start(blob_table, BLOB, "a", streamed=streamed)
    await cached.until_on_disk()
    assert await lent_bytes(blob_table, cached) == CONTENT
    assert bench.origin.reads == before


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_damaged_chunk_on_disk_is_fetched_again_alone_and_mended_in_every_tree(
    bench: Bench, streamed: bool
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
async def test_a_file_cut_short_on_disk_is_fetched_again(bench: Bench, streamed: bool) -> None:
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
    bench: Bench,
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


async def test_a_disk_tier_at_its_limit_drops_what_was_used_longest_ago(bench: Bench) -> None:
    third = random_bytes(CHUNK_BYTES, 5)
    publish(bench.root / "store", {"c": third})
    limit_bytes = len(CONTENT) + len(OTHER) + 1
    blob_table = bench.make(disk_bytes=limit_bytes)
    first = bench.start(blob_table, BLOB, "a")
    await first.until_on_disk()
    await bench.start(blob_table, SECOND, "b").until_on_disk()
    await lent_bytes(blob_table, first)
    await bench.start(blob_table, blob_of(third), "c").until_on_disk()
    assert set(blob_table.disk.digests()) == {BLOB.digest, blob_of(third).digest}
    assert blob_table.disk.used_bytes <= limit_bytes
    assert len(bench.origin.reads) == 6
    await bench.start(blob_table, SECOND, "b").until(lambda: len(bench.origin.reads) == 8)


async def test_what_a_tree_or_a_reader_needs_stays_and_the_newcomer_is_in_memory(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    third = random_bytes(CHUNK_BYTES, 5)
    publish(bench.root / "store", {"c": third, "d": third[:-1]})
    wanted = {BLOB.digest}
    blob_table = bench.make(disk_bytes=len(CONTENT) + len(OTHER), wanted=lambda: wanted)
    await bench.start(blob_table, BLOB, "a").until_on_disk()
    second = bench.start(blob_table, SECOND, "b")
    await second.until_on_disk()
    async with blob_table.lend(second):
        newcomers = [bench.start(blob_table, blob_of(c), "c") for c in (third, third[:-1])]
        for one in newcomers:
            with pytest.raises(NoSpace, match=r"16 MiB in a tree|17 MiB in a tree, 9 MiB leased"):
                await one.until_on_disk()
            assert await lent_bytes(blob_table, one) in (third, third[:-1])
        assert "raise the limit (--disk)" in blob_table.disk_trouble
    assert set(blob_table.disk.digests()) == {BLOB.digest, SECOND.digest}
    said = [record for record in caplog.records if "is in memory only" in record.message]
    assert len(said) == 1
    wanted.clear()
    async with asyncio.timeout(PATIENCE_S):
        for one in newcomers:
            await one.until(functools.partial(getattr, one, "on_disk"))
    assert blob_table.disk_trouble == ""


async def test_memory_is_taken_back_from_idle_files_on_disk(bench: Bench) -> None:
    blob_table = bench.make(arena_bytes=len(CONTENT) + 1)
    first = bench.start(blob_table, BLOB, "a")
    await first.until_on_disk()
    second = bench.start(blob_table, SECOND, "b")
    await second.until_on_disk()
    assert second.in_arena and not first.in_arena
    assert blob_table.arena.used_bytes == len(OTHER)
    assert await lent_bytes(blob_table, first) == CONTENT


async def test_memory_on_lease_is_not_taken_and_the_newcomer_goes_to_disk(bench: Bench) -> None:
    blob_table = bench.make(arena_bytes=len(CONTENT) + 1)
    first = bench.start(blob_table, BLOB, "a")
    async with blob_table.lend(first):
        await first.until_on_disk()
        second = bench.start(blob_table, SECOND, "b")
        await second.until_on_disk()
        assert first.in_arena and not second.in_arena
        assert await lent_bytes(blob_table, second) == OTHER


async def test_a_file_that_goes_to_disk_can_be_read_while_it_arrives(bench: Bench) -> None:
    blob_table = bench.make(arena_bytes=0)
    bench.origin.hold(BLOB, 2)
    cached = bench.start(blob_table, BLOB, "a")
    await cached.until(lambda: len(cached.done) == 2)
    async with blob_table.lend(cached) as fd:
        assert os.pread(fd, CHUNK_BYTES, 0) == CONTENT[:CHUNK_BYTES]
        bench.origin.release()
        await cached.until_on_disk()
        assert os.pread(fd, 100, 2 * CHUNK_BYTES) == CONTENT[2 * CHUNK_BYTES :]


async def test_who_reads_a_large_file_while_it_arrives_is_done_before_it_goes_to_disk(
    bench: Bench,
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


async def test_a_full_disk_leaves_the_file_readable_from_memory(bench: Bench) -> None:
    (bench.root / "disk").rmdir()  # stands for any disk that refuses
    cached = bench.bring()
    with pytest.raises(CacheError, match="cannot be written"):
        await cached.until_on_disk()
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    (bench.root / "disk").mkdir()


async def test_a_dropped_blob_leaves_nothing_once_its_lease_ends(bench: Bench) -> None:
    cached = bench.bring()
    await cached.until_on_disk()
    async with bench.blob_table.lend(cached) as fd:
        await bench.blob_table.drop(BLOB.digest)
        assert os.pread(fd, 9, 0) == CONTENT[:9]
        assert bench.blob_table.arena.used_bytes == len(CONTENT)
    assert bench.blob_table.arena.used_bytes == 0
    assert not bench.blob_table.disk.has(BLOB.digest, len(CONTENT))


async def test_a_file_deleted_under_us_is_fetched_again(bench: Bench) -> None:
    await bench.bring(streamed=False).until_on_disk()
    bench.blob_table.disk.path(BLOB.digest).unlink()
    await bench.bring(streamed=False).until_on_disk()
    assert len(bench.origin.reads) == 6


async def test_what_the_kernel_has_no_memory_for_goes_to_disk(bench: Bench) -> None:
    arena = ScantMemory(1 << 30)
    bench.blob_table = bench.make(arena=arena)
    cached = bench.bring()
    await cached.until_on_disk()
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
    assert arena.used_bytes == 0


async def test_a_borrowed_blob_that_memory_ends_for_fails_and_is_on_disk_the_next_time(
    bench: Bench,
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
    bench: Bench, tmp_path: Path
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


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_first_fetch_of_a_file_without_digests_sets_them(
    bench: Bench, streamed: bool
) -> None:
    draft = Draft(BLOB.size_bytes)
    origin = bench.origin.source(BLOB)
    cached = bench.blob_table.bring(
        OriginFile(draft, origin, "a draft", "model.safetensors"), streamed
    )
    await cached.until_on_disk()
    assert cached.content == BLOB
    assert cached.key == BLOB.digest
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
    assert bench.start(bench.blob_table, BLOB, "a") is cached, "its digest is known now"
