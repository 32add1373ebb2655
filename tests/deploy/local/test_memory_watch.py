"""How often the memory of what runs is read."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

import pytest

from hotplate.deploy.local.memory_watch import MemoryWatch, MemoryWatchSettings, pause_s
from hotplate.deploy.process.memory import Memory
from tests.support.patience import until as eventually


class Ourselves:
    """This process, which is read."""

    def __init__(self) -> None:
        self.memory: Memory | None = None
        self.reads = 0
        self.threads: set[int] = set()

    def members(self) -> Collection[int]:
        self.reads += 1
        self.threads.add(threading.get_ident())
        return [os.getpid()]


@asynccontextmanager
async def running(
    found: list[Ourselves], round_s: float, starting: Callable[[], bool] = lambda: False
) -> AsyncIterator[tuple[MemoryWatch, list[int]]]:
    """With how many had been read at each moment at which that was told."""
    told: list[int] = []
    watch = MemoryWatch(
        lambda: found,
        lambda: told.append(sum(each.memory is not None for each in found)),
        MemoryWatchSettings(round_s, share=1.0),  # whatever this process has grown to
        starting,
    )
    task = asyncio.create_task(watch.run())
    yield watch, told
    task.cancel()
    await asyncio.wait([task])


async def test_all_are_read_soon_when_one_comes_or_goes_and_not_before_the_round_is_over() -> None:
    first, second = Ourselves(), Ourselves()
    found = [first]
    async with running(found, round_s=3600) as (watch, told):
        watch.look()
        await eventually(lambda: told == [1])
        found.append(second)
        watch.look()
        watch.look()
        await eventually(lambda: told == [1, 2])
        assert (first.reads, second.reads) == (2, 1)
        assert second.memory is not None and second.memory.own_bytes > 1 << 20
        assert threading.get_ident() not in first.threads
        found.remove(first)
        watch.look()
        await eventually(lambda: second.reads == 2)
        assert first.reads == 2


async def test_all_are_read_once_a_round() -> None:
    found = [Ourselves(), Ourselves()]
    async with running(found, round_s=0.01) as (watch, told):
        watch.look()
        await eventually(lambda: len(told) >= 3)
        assert [each.reads >= 2 for each in found] == [True, True]


async def test_where_nothing_runs_nothing_is_read_and_what_comes_then_is() -> None:
    found: list[Ourselves] = []
    async with running(found, round_s=0.01) as (watch, told):
        watch.look()
        await asyncio.sleep(0.05)  # several rounds, of which none may be
        assert told == []
        found.append(Ourselves())
        watch.look()
        await eventually(lambda: bool(told))


@pytest.mark.parametrize(
    ("cost_s", "share", "least_s", "pause"),
    [
        (0.0, 0.005, 10.0, 10.0),
        (0.05, 0.005, 10.0, 10.0),
        (0.1, 0.005, 10.0, 20.0),
        (1, 0.1, 0, 10),
    ],
)
def test_a_pause_is_as_long_as_the_reading_was_dear(
    cost_s: float, share: float, least_s: float, pause: float
) -> None:
    assert pause_s(cost_s, share, least_s) == pytest.approx(pause)


async def test_while_others_start_they_are_read_later_and_are_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hotplate.deploy.local.memory_watch.SETTLING_S", 0.01)
    asked: list[bool] = []
    starts = [True]

    def starting() -> bool:
        asked.append(starts[0])
        return starts[0]

    async with running([Ourselves()], round_s=3600, starting=starting) as (watch, told):
        watch.look()
        await eventually(lambda: asked)
        assert told == []
        starts[0] = False
        watch.look()
        await eventually(lambda: told == [1])
    monkeypatch.setattr("hotplate.deploy.local.memory_watch.CROWD_S", 0.05)
    async with running([Ourselves()], round_s=3600, starting=lambda: True) as (watch, told):
        watch.look()
        await eventually(lambda: told == [1])
