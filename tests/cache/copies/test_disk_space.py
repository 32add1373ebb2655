"""What leaves the disk tier, and what stays."""

from __future__ import annotations

import asyncio
import functools

import pytest

from hotplate.cache.errors import NoSpace
from hotplate.cache.manifest import CHUNK_BYTES
from tests.support.cache.blob_bench import BLOB, CONTENT, OTHER, SECOND, BlobBench, lent_bytes
from tests.support.cache.fakes import blob_of, publish, random_bytes
from tests.support.patience import PATIENCE_S


async def test_a_disk_tier_at_its_limit_drops_what_was_used_longest_ago(bench: BlobBench) -> None:
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
    bench: BlobBench, caplog: pytest.LogCaptureFixture
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
    logged = [record for record in caplog.records if "is in memory only" in record.message]
    assert len(logged) == 1
    wanted.clear()
    async with asyncio.timeout(PATIENCE_S):
        for one in newcomers:
            await one.until(functools.partial(getattr, one, "on_disk"))
    assert blob_table.disk_trouble == ""
