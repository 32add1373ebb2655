from __future__ import annotations

import asyncio

from hotplate.cache.copies.cached_blob import CachedBlob, OriginFile
from hotplate.cache.manifest import CHUNK_BYTES, Draft
from hotplate.cache.origins.blob_source import FsspecOrigin
from tests.support.cache.fakes import PacedOrigin, blob_of
from tests.support.patience import PATIENCE_S

COUNT = 3


def a_holding() -> CachedBlob:
    source = PacedOrigin(FsspecOrigin("memory://nothing")).source(blob_of(b""))
    return CachedBlob(OriginFile(Draft(COUNT * CHUNK_BYTES), source, "draft", "model.safetensors"))


async def waits(cached: CachedBlob, known: int) -> asyncio.Task[None]:
    task = asyncio.create_task(cached.until_more(known))
    await asyncio.sleep(0)
    return task


async def test_the_loop_is_woken_for_chunks_that_somebody_waits_for_and_for_the_last() -> None:
    cached = a_holding()
    assert not cached.verified(2)
    waiting = await waits(cached, 2)
    assert not cached.verified(0)
    assert cached.verified(1)  # the third, and the last of all
    cached.notify()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert cached.done == [2, 0, 1] and cached.verified_bytes == COUNT * CHUNK_BYTES


async def test_a_waiter_whose_condition_is_evaluated_still_counts_as_waiting() -> None:
    cached = a_holding()
    cached.verified(0)
    notified: list[bool] = []

    def is_second_here() -> bool:
        found = len(cached.done) > 1
        if notifying and not notified:  # it comes right after this look
            notified.append(False)
            notified.append(cached.verified(1))
        return found

    notifying = False
    waiting = asyncio.create_task(cached.until(is_second_here))
    await asyncio.sleep(0)
    notifying = True
    cached.notify()
    assert notified == [False, True]
    cached.notify()
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_waiter_that_begins_just_as_the_chunk_comes_does_not_wait() -> None:
    cached = a_holding()
    looked = 0

    def is_here() -> bool:
        nonlocal looked
        looked += 1
        if looked == 1:  # it comes after this look, and before anybody sees who waits
            assert not cached.done
            assert not cached.verified(0)
            return False
        return bool(cached.done)

    await asyncio.wait_for(cached.until(is_here), PATIENCE_S)
