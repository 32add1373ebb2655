"""From no process to the first answer: a service without torch, environment built before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from loadtests.harness.child_process import ROOT, BenchmarkFailed, Child
from loadtests.harness.installation import Installation, deploy, installation, serving
from loadtests.harness.report import StartRow, column, median, ratio, spread
from tests.support.services.bentos import SLEEPY

PROJECT = ROOT / "examples" / "hello"
NAME = "coldstart"
LIMIT_S = 60.0
RETRY_S = 0.02
OURS, PEER = "hotplate, from zero", "bentoml serve"


@dataclass(frozen=True)
class Row(StartRow):
    cpu_s: float | None = column("CPU s", 2)
    time_ratio: float | None = column("x ours", 2)


@dataclass(frozen=True)
class Sample:
    seconds: float
    cpu_s: float
    """Of all processes of the platform, or of the server."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rounds = 1 if quick else 5
    samples: dict[str, list[Sample]] = {OURS: [], PEER: []}
    async with installation(folder) as here:
        url, tag = await deploy(here, PROJECT, NAME, {"Hello": {"scaling": SLEEPY}})
        for number in range(rounds):
            await here.asleep(NAME)
            samples[OURS].append(await _timed(here.process, lambda: _answer(url)))
            await here.asleep(NAME)
            samples[PEER].append(await _served(here, tag, folder / f"serve-{number}.log"))
    mine_s = median(sample.seconds for sample in samples[OURS])
    return [_row(way, of_way, mine_s) for way, of_way in samples.items()]


async def _served(here: Installation, tag: str, log: Path) -> Sample:
    """`bentoml serve` of the same bento."""
    began = time.perf_counter()
    async with serving(here, tag, log) as (url, server):
        await _answer(url, server)
        return Sample(time.perf_counter() - began, server.cpu_s())


async def _timed(process: Child, act: Callable[[], Awaitable[None]]) -> Sample:
    before_s, began = process.cpu_s(), time.perf_counter()
    await act()
    return Sample(time.perf_counter() - began, process.cpu_s() - before_s)


async def _answer(url: str, server: Child | None = None) -> None:
    """Asks until the first answer comes; a `server` that is still starting is asked again."""
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"{url}/greet", json={"name": "Ann"}) as answer:
                    if answer.status == 200:
                        return
                    if server is None:
                        raise BenchmarkFailed(f"{url}: {answer.status} {await answer.text()}")
            except aiohttp.ClientConnectionError as error:
                if server is None or not server.alive:
                    tail = "" if server is None else server.log_tail
                    raise BenchmarkFailed(f"{url} does not answer: {error}; {tail}") from error
            await asyncio.sleep(RETRY_S)


def _row(way: str, samples: Sequence[Sample], mine_s: float) -> Row:
    times_s = [sample.seconds for sample in samples]
    return Row(
        way,
        **spread(times_s),
        cpu_s=median(sample.cpu_s for sample in samples),
        time_ratio=ratio(median(times_s), mine_s),
    )
