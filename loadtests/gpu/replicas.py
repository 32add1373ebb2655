"""Replicas on a GPU, made by the local engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hotplate.deploy.engine import Replica, ReplicaState
from hotplate.deploy.local.engine import LocalEngine
from hotplate.deploy.local.host import host_in
from hotplate.deploy.local.settings import LocalSettings
from hotplate.deploy.standbys import StandbyMode, StandbySettings
from hotplate.deploy.workload import Workload
from loadtests.gpu.finding import CheckFailed, Finding, ensure
from loadtests.gpu.hardware import machine
from loadtests.gpu.programs import Bento, PlainServer, Program, Programs, work, workload
from tests.support.deploy.running import started, until

READY_S = 80.0
MIB = 1 << 20
READY = ReplicaState.READY
GONE = (ReplicaState.BACKOFF, ReplicaState.FAILED)


def whole(folder: Path) -> Iterator[Finding]:
    yield asyncio.run(_whole(folder, PlainServer(), "a replica on the GPU, by the local engine"))


def bento(folder: Path) -> Iterator[Finding]:
    title = "a replica of a bento on the GPU, by the local engine"
    yield asyncio.run(_whole(folder, Bento(), title))


def halves(folder: Path) -> Iterator[Finding]:
    yield from asyncio.run(_halves(folder))


async def _whole(folder: Path, program: Program, title: str) -> Finding:
    async with started(_engine(folder, program)) as engine:
        (replica,) = await _ready(engine, workload(1.0), 1)
        _look(await asyncio.to_thread(work, replica.address))
        await engine.scale(workload(1.0), 2)
        reason = await _waits(engine)
    return Finding(title, f"ready in {replica.cold_start_s:.1f} s", True, f"a second: {reason}")


async def _halves(folder: Path) -> list[Finding]:
    async with started(_engine(folder, PlainServer())) as engine:
        (one,) = await _ready(engine, workload(0.5), 1)
        alone = await asyncio.to_thread(work, one.address)
        replicas = await _ready(engine, workload(0.5), 2)
        calls = [asyncio.to_thread(work, replica.address) for replica in replicas]
        both = await asyncio.gather(*calls)
        for answer in both:
            _look(answer)
        ensure(both[0]["pid"] != both[1]["pid"], "both answers are of one process")
        ensure(both[0]["uuid"] == both[1]["uuid"], "the halves are of two GPUs")
        await engine.scale(workload(0.5), 3)
        reason = await _waits(engine)
    more_bytes = max(answer["used_bytes"] for answer in both) - alone["used_bytes"]
    slowest_s = max(replica.cold_start_s for replica in replicas)
    figure = f"ready in {slowest_s:.1f} s; the second takes {more_bytes / MIB:,.0f} MiB"
    return [Finding("two replicas on halves of a GPU", figure, True, f"a third: {reason}")]


def _engine(folder: Path, program: Program) -> LocalEngine:
    settings = LocalSettings(standby=StandbySettings(StandbyMode.OFF))
    return LocalEngine(host_in(folder, machine()), Programs(program), machine(), settings)


async def _ready(engine: LocalEngine, wanted: Workload, count: int) -> Sequence[Replica]:
    """Waits for so many replicas, all ready. Raises CheckFailed with the log of one that ended."""
    await engine.scale(wanted, count)

    def are_ready(replicas: Sequence[Replica]) -> bool:
        for replica in replicas:
            tail = " | ".join(replica.log_tail[-3:])
            ensure(replica.state not in GONE, f"{replica.reason} {tail}")
        return [replica.state for replica in replicas] == [READY] * count

    return await _until(engine, are_ready)


async def _waits(engine: LocalEngine) -> str:
    """The reason why one more replica, for which there is no room, is pending."""

    def one_waits(replicas: Sequence[Replica]) -> bool:
        return any(each.state is ReplicaState.PENDING and each.reason for each in replicas)

    replicas = await _until(engine, one_waits)
    return next(each.reason for each in replicas if each.state is ReplicaState.PENDING)


async def _until(
    engine: LocalEngine, holds: Callable[[Sequence[Replica]], bool]
) -> Sequence[Replica]:
    try:
        return await until(engine, holds, READY_S)
    except AssertionError as error:
        raise CheckFailed(str(error)) from None


def _look(answer: dict[str, Any]) -> None:
    ensure(answer["right"], "a product that a replica computed on the GPU is wrong")
    ensure(answer["count"] == 1, f"a replica with one GPU sees {answer['count']}")
