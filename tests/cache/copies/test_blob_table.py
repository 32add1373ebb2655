"""What a node has of its blobs, and how readers get it."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref

import pytest

from hotplate.cache.copies.cached_blob import OriginFile
from hotplate.cache.errors import ChunkCorrupt, OriginUnavailable, UnknownBlob
from hotplate.cache.manifest import Draft
from tests.support.cache.blob_bench import BLOB, CONTENT, SECOND, BlobBench, lent_bytes
from tests.support.cache.fakes import blob_of, publish
from tests.support.patience import PATIENCE_S


async def test_a_thread_that_waits_for_work_keeps_no_finished_fetch_alive(
    bench: BlobBench,
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
async def test_a_blob_arrives_verified_and_on_disk(bench: BlobBench, streamed: bool) -> None:
    cached = bench.bring(streamed=streamed)
    await cached.until_on_disk()
    assert cached.in_arena == streamed
    assert bench.blob_table.disk.path(BLOB.digest).read_bytes() == CONTENT
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    assert sorted(cached.done) == [0, 1, 2] and cached.verified_bytes == len(CONTENT)


async def test_many_callers_that_want_a_blob_fetch_it_once(bench: BlobBench) -> None:
    found = {id(bench.bring(streamed=number % 2 == 0)) for number in range(9)}
    await bench.bring().until_on_disk()
    assert len(found) == 1
    assert sorted(bench.origin.reads) == [(BLOB.digest, index) for index in range(3)]


async def test_a_chunk_counts_only_after_its_digest_was_right(bench: BlobBench) -> None:
    bench.origin.corrupt(BLOB, 1, times=2)
    cached = bench.bring()
    await cached.until_on_disk()
    assert bench.origin.reads.count((BLOB.digest, 1)) == 3
    assert await lent_bytes(bench.blob_table, cached) == CONTENT
    found = bench.metrics.registry.get_sample_value
    assert found("hotplate_cache_chunks_total", {"source": "origin", "result": "corrupt"}) == 2
    assert found("hotplate_cache_chunks_total", {"source": "origin", "result": "verified"}) == 3


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_corrupt_origin_exposes_nothing(bench: BlobBench, streamed: bool) -> None:
    bench.origin.corrupt(BLOB, 1, times=9)
    cached = bench.bring(streamed=streamed)
    with pytest.raises(ChunkCorrupt, match=r"model.safetensors: chunk 1 of 3 was corrupt 4 times"):
        await cached.until_on_disk()
    assert 1 not in cached.done
    assert list((bench.root / "disk").iterdir()) == []
    assert bench.blob_table.arena.used_bytes == 0


async def test_what_failed_is_tried_anew_when_asked_again(bench: BlobBench) -> None:
    bench.origin.corrupt(BLOB, 1, times=4)
    with pytest.raises(ChunkCorrupt):
        await bench.bring().until_on_disk()
    await bench.bring().until_on_disk()


async def test_an_unknown_blob_fails_at_once(bench: BlobBench) -> None:
    with pytest.raises(UnknownBlob):
        await bench.bring(blob_of(b"never pushed")).until_on_disk()


async def test_an_origin_that_hangs_fails_the_blob_and_not_the_agent(bench: BlobBench) -> None:
    blob_table = bench.make(stall_s=0.5)
    bench.origin.hold(BLOB, 1)
    cached = bench.start(blob_table, BLOB, "model.safetensors")
    sentence = r"nothing new arrived in 0.5 s, [0-2] of 3 chunks are here"
    with pytest.raises(OriginUnavailable, match=sentence):
        await cached.until_on_disk()
    second = bench.start(blob_table, SECOND, "b", streamed=False)
    await second.until_on_disk()


async def test_an_origin_that_comes_back_in_time_is_no_error(bench: BlobBench) -> None:
    bench.origin.failure = OriginUnavailable("down")
    cached = bench.bring()
    await asyncio.to_thread(bench.origin.wait_for_read, BLOB, 0)
    bench.origin.failure = None
    await cached.until_on_disk()


async def test_what_a_reader_wants_is_fetched_first(bench: BlobBench) -> None:
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


async def test_a_small_file_waits_for_no_large_files_chunks(bench: BlobBench) -> None:
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


async def test_a_dropped_blob_leaves_nothing_once_its_lease_ends(bench: BlobBench) -> None:
    cached = bench.bring()
    await cached.until_on_disk()
    async with bench.blob_table.lend(cached) as fd:
        await bench.blob_table.drop(BLOB.digest)
        assert os.pread(fd, 9, 0) == CONTENT[:9]
        assert bench.blob_table.arena.used_bytes == len(CONTENT)
    assert bench.blob_table.arena.used_bytes == 0
    assert not bench.blob_table.disk.has(BLOB.digest, len(CONTENT))


async def test_a_file_deleted_under_us_is_fetched_again(bench: BlobBench) -> None:
    await bench.bring(streamed=False).until_on_disk()
    bench.blob_table.disk.path(BLOB.digest).unlink()
    await bench.bring(streamed=False).until_on_disk()
    assert len(bench.origin.reads) == 6


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_first_fetch_of_a_file_without_digests_sets_them(
    bench: BlobBench, streamed: bool
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
