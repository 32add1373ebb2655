"""Whose turn it is to be prepared, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from hotplate.deploy.engine import ReplicaState
from hotplate.deploy.local.start_turns import StartTurns
from tests.deploy.local.test_engine import running
from tests.support.deploy import running as engines
from tests.support.deploy.fake_runtime import FakeRuntime, workload
from tests.support.patience import until


class Starters:
    """Some that take turns; each goes on until it is told to end."""

    def __init__(self, turns: StartTurns, count: int) -> None:
        self.begun: list[int] = []
        self.ends = [asyncio.Event() for _ in range(count)]
        self.tasks = [asyncio.create_task(self._start(turns, each)) for each in range(count)]

    async def _start(self, turns: StartTurns, number: int) -> None:
        async with turns.taken():
            self.begun.append(number)
            await self.ends[number].wait()

    async def end(self, number: int) -> None:
        self.ends[number].set()
        with suppress(asyncio.CancelledError):
            await self.tasks[number]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_next_one_begins_when_one_before_it_has_its_process() -> None:
    starts = Starters(StartTurns(at_once=2, longest_s=60), 5)
    await starts.settle()
    assert starts.begun == [0, 1]
    await starts.end(1)
    assert starts.begun == [0, 1, 2]
    starts.tasks[3].cancel()  # it is no longer wanted, and waits
    starts.tasks[2].cancel()
    await starts.end(2)
    assert starts.begun == [0, 1, 2, 4]
    for number in (0, 4):
        await starts.end(number)


async def test_what_takes_long_holds_up_nobody() -> None:
    starts = Starters(StartTurns(at_once=1, longest_s=0.02), 3)
    await until(lambda: len(starts.begun) == 3)
    for number in range(3):
        await starts.end(number)


async def test_a_turn_that_was_over_before_is_not_given_back_twice() -> None:
    turns = StartTurns(at_once=1, longest_s=0.02)
    async with turns.taken(), asyncio.timeout(5), turns.taken():  # the first is over
        pass
    starts = Starters(turns, 2)
    await starts.settle()
    assert starts.begun == [0]
    for number in (0, 1):
        await starts.end(number)


async def test_replicas_of_an_engine_are_prepared_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = partial(StartTurns, longest_s=600)
    monkeypatch.setattr("hotplate.deploy.local.engine.StartTurns", patient)
    runtime = FakeRuntime()
    runtime.hangs = True
    async with running(tmp_path, runtime) as engine:
        await engine.scale(workload(), 4)
        await engines.until(engine, engines.states(*[ReplicaState.STARTING] * 4))
        await until(lambda: len(runtime.prepared) >= 2)
        await asyncio.sleep(0.05)
        assert len(runtime.prepared) == 2
        runtime.hangs = False
        await engine.scale(workload(), 2, remove=runtime.prepared)
        await engines.until(engine, engines.states(*[ReplicaState.READY] * 2))
