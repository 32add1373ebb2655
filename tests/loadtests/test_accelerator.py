"""The stand-in for a GPU: no more speed than it has, and counts to be trusted."""

from __future__ import annotations

import asyncio

from loadtests.harness.accelerator import Accelerator, clock

WORK_S = 0.03
CLOCK_S = 1e-3
"""A loop's timers may be so much early by another clock."""


async def ends_s(accelerator: Accelerator, count: int) -> list[float]:
    """When each of so many handlers, begun at once, has ended; seconds from now."""
    began, ends = clock(), list[float]()
    done = asyncio.Event()

    def end() -> None:
        ends.append(clock() - began)
        if len(ends) == count:
            done.set()

    for _ in range(count):
        accelerator.begin(WORK_S, end)
    await done.wait()
    return ends


async def test_work_within_the_slots_takes_its_time_and_more_shares_it() -> None:
    accelerator = Accelerator(2)
    assert all(end >= WORK_S - CLOCK_S for end in await ends_s(accelerator, 2))
    assert all(end >= 2 * (WORK_S - CLOCK_S) for end in await ends_s(accelerator, 4))
    stats = accelerator.stats()
    assert (stats.running, stats.most, stats.begun, stats.ended) == (0, 4, 6, 6)


async def test_it_says_how_long_a_slot_was_unused() -> None:
    accelerator = Accelerator(1)
    await ends_s(accelerator, 1)
    await asyncio.sleep(WORK_S)
    await ends_s(accelerator, 1)
    assert accelerator.stats().back_p50_s > WORK_S / 2


async def test_work_of_no_time_ends_at_once() -> None:
    accelerator, ended = Accelerator(1), list[bool]()
    accelerator.begin(0, lambda: ended.append(True))
    assert ended and accelerator.stats().most == 1
