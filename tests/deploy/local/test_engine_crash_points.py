"""The engine dies after every single thing that it writes or starts; the next one goes on.

Its replicas are real processes, and outlive it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.records import Record, Records
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from hotplate.deploy.workload import Workload
from tests.support.dead import Dead, bury_the_dead
from tests.support.deploy.fake_runtime import MACHINE, QUICK, FakeRuntime, workload
from tests.support.deploy.running import states, until, zombies
from tests.support.patience import PATIENCE_S

S = ReplicaState


class MortalRecords(Records):
    """After so many effects on the disk the engine does nothing more; 0 = it lives on."""

    def __init__(self, directory: Path, effects: int) -> None:
        super().__init__(directory)
        self.died = asyncio.Event()
        self.last = ""
        self._left = effects
        self._loop = asyncio.get_running_loop()
        bury_the_dead(self._loop)

    def create(self, replica: str) -> None:
        self._needed()
        super().create(replica)
        self._spent("create")

    def empty_work(self, replica: str) -> Path:
        self._needed()
        folder = super().empty_work(replica)
        self._spent("empty")
        return folder

    def save(self, record: Record) -> None:
        self._needed()
        # Its process has been started or told to end, and nothing says so yet.
        self._spent("process")
        super().save(record)
        self._spent("save")

    def end(self, replica: str) -> None:
        self._needed()
        self._spent("process's end")
        super().end(replica)
        self._spent("end")

    def _needed(self) -> None:
        if self.last:
            raise Dead(self.last)

    def _spent(self, effect: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.last = effect
            self._loop.call_soon_threadsafe(self.died.set)
        self._needed()


@dataclass(frozen=True)
class Change:
    """From one wish to another."""

    name: str
    least: int
    """At least so many moments of death are in it."""
    before: int
    after: int


CHANGES = [
    Change("start", 6, before=0, after=1),
    Change("scale up", 6, before=1, after=2),
    Change("scale down", 3, before=2, after=1),
    Change("end", 3, before=1, after=0),
]
SERVICE = workload(ready_after_s=0.01)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
async def test_an_engine_that_dies_at_any_moment_leaves_nothing_that_the_next_cannot_put_right(
    tmp_path: Path, change: Change
) -> None:
    for effects in range(1, 100):
        folder = tmp_path / f"{effects}"
        folder.mkdir()
        await live(folder, SERVICE, change.before)
        survivors = len(processes(folder))
        assert survivors == change.before
        records = MortalRecords(folder, effects)
        await live(folder, SERVICE, change.after, records)
        finished = not records.last
        replicas = await live(folder, SERVICE, change.after)
        assert len({each.id for each in replicas}) == change.after, records.last
        assert len(processes(folder)) == change.after, records.last
        assert sorted(Records(folder).ids()) == sorted(each.id for each in replicas)
        await live(folder, SERVICE, 0)
        assert not processes(folder)
        if finished:
            break
    assert effects > change.least
    assert not zombies()


async def live(
    folder: Path, wanted: Workload, count: int, records: MortalRecords | None = None
) -> Sequence[Replica]:
    """An engine until its wish is true and nothing else is left, or until it dies."""
    host = host_in(folder, MACHINE, records=records)
    engine = LocalEngine(host, FakeRuntime(), MACHINE, QUICK, random.Random())
    await engine.start()
    await engine.scale(wanted, count)
    await engine.expect([wanted])
    resting = asyncio.create_task(at_rest(engine, host.records, count))
    waits: list[asyncio.Task[Any]] = [resting]
    if records is not None:
        waits.append(asyncio.create_task(records.died.wait()))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for waiting in waits:
        waiting.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    replicas = engine.replicas()
    await engine.close()
    if records is None or not records.last:
        resting.result()
    return replicas


async def at_rest(engine: LocalEngine, records: Records, count: int) -> None:
    await until(engine, states(*[S.READY] * count))
    async with asyncio.timeout(PATIENCE_S):
        while len(records.ids()) != count:  # noqa: ASYNC110 - clearing away is no news
            await asyncio.sleep(0.005)


def processes(folder: Path) -> list[int]:
    """Those of the engine's replicas that run, also of replicas that it knows no more."""
    found = []
    for stray in Process.find(REPLICA_DIR, [str(work) for work in folder.glob("replicas/*/work")]):
        found.append(stray.pid)
        stray.leave()
    return found
