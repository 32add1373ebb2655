"""What leaves memory, and what stays."""

from __future__ import annotations

from tests.support.cache.blob_bench import BLOB, CONTENT, OTHER, SECOND, BlobBench, lent_bytes


async def test_memory_is_taken_back_from_idle_files_on_disk(bench: BlobBench) -> None:
    blob_table = bench.make(arena_bytes=len(CONTENT) + 1)
    first = bench.start(blob_table, BLOB, "a")
    await first.until_on_disk()
    second = bench.start(blob_table, SECOND, "b")
    await second.until_on_disk()
    assert second.in_arena and not first.in_arena
    assert blob_table.arena.used_bytes == len(OTHER)
    assert await lent_bytes(blob_table, first) == CONTENT


async def test_memory_on_lease_is_not_taken_and_the_newcomer_goes_to_disk(bench: BlobBench) -> None:
    blob_table = bench.make(arena_bytes=len(CONTENT) + 1)
    first = bench.start(blob_table, BLOB, "a")
    async with blob_table.lend(first):
        await first.until_on_disk()
        second = bench.start(blob_table, SECOND, "b")
        await second.until_on_disk()
        assert first.in_arena and not second.in_arena
        assert await lent_bytes(blob_table, second) == OTHER
