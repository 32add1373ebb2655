from __future__ import annotations

import asyncio

from hotplate.cache.copies.cached_blob import CachedBlob
from hotplate.cache.manifest import CHUNK_BYTES, Draft
from hotplate.cache.origins.blob_source import FsspecOrigin
from tests.support.cache.fakes import PacedOrigin, blob_of
from tests.support.patience import PATIENCE_S

COUNT = 3


def a_holding() -> CachedBlob:
    source = PacedOrigin(FsspecOrigin("memory://nothing")).source(blob_of(b""))
    return CachedBlob(Draft(COUNT * CHUNK_BYTES), source, "draft", "model.safetensors")


async def waits(holding: CachedBlob, told: int) -> asyncio.Task[None]:
    task = asyncio.create_task(holding.until_more(told))
    await asyncio.sleep(0)
    return task


async def test_the_loop_is_woken_for_chunks_that_somebody_waits_for_and_for_the_last() -> None:
    holding = a_holding()
    assert not holding.verified(2)
    waiting = await waits(holding, 2)
    assert not holding.verified(0)
    assert holding.verified(1)  # the third, and the last of all
    holding.notify()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert holding.done == [2, 0, 1] and holding.verified_bytes == COUNT * CHUNK_BYTES


async def test_who_is_looked_at_to_be_woken_is_still_seen_to_wait() -> None:
    holding = a_holding()
    holding.verified(0)
    told: list[bool] = []

    def is_second_here() -> bool:
        found = len(holding.done) > 1
        if notifying and not told:  # it comes right after this look
            told.append(False)
            told.append(holding.verified(1))
        return found

    notifying = False
    waiting = asyncio.create_task(holding.until(is_second_here))
    await asyncio.sleep(0)
    notifying = True
    holding.notify()
    assert told == [False, True]
    holding.notify()
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_who_begins_to_wait_just_as_the_chunk_comes_does_not_wait() -> None:
    holding = a_holding()
    looked = 0

    def is_here() -> bool:
        nonlocal looked
        looked += 1
        if looked == 1:  # it comes after this look, and before anybody sees who waits
            assert not holding.done
            assert not holding.verified(0)
            return False
        return bool(holding.done)

    await asyncio.wait_for(holding.until(is_here), PATIENCE_S)
