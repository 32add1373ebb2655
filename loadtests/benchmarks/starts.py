"""Starts of a service without torch: forked from a template, cold, and `bentoml serve` beside."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import aiohttp

from loadtests.harness.child_process import BIN, BenchmarkFailed, running
from loadtests.harness.parts import Measures, measured
from loadtests.harness.report import StartRow, column, median, spread
from loadtests.systems.kitchens import Kitchens, kitchens
from tests.support.memory import memory_bytes, tree_bytes
from tests.support.patience import until
from tests.support.ports import free_range
from tests.support.processor import cpu_s, machine_cpu_s
from tests.support.services.calling import Refused, call, process_of

NAME = "kitchen"
FORKED, COLD, SERVE = "forked from a template", "cold", "bentoml serve"
AUTOMATIC, OFF = "calm_s = 0.5\nmemory_share = 0.9", "mode = 'off'"
PAIRS, QUICK_PAIRS = 30, 2
CROWDS, QUICK_CROWD = (31, 100), 4
REPLICAS, QUICK_REPLICAS = 16, 2
ROUNDS, QUICK_ROUNDS = 40, 2
ROUND_REQUESTS = 250
TEMPLATE_S = 60.0


@dataclass(frozen=True)
class Row(StartRow):
    p95_s: float | None = column("p95 s", 2)
    memory_mib: float | None = column("memory of one MiB", 1)
    serve_ratio: float | None = column("x bentoml serve", 3)
    rate_per_s: float | None = column("requests/s", 0)
    cpu_ms: float | None = column("CPU ms each", 3)
    cold_ratio: float | None = column("x cold, CPU", 3)


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    rows: list[Row] = []
    for part in parts or PARTS:
        rows += await measured(_MEASURES, part, folder, quick)
    return rows


async def _one(folder: Path, quick: bool) -> list[Row]:
    """From zero to the first answer, one after another, the three ways in turn."""
    taken: dict[str, list[float]] = {FORKED: [], COLD: [], SERVE: []}
    async with _place(folder / "forked", AUTOMATIC) as forked, _place(folder / "cold", OFF) as cold:
        places = {FORKED: forked, COLD: cold}
        urls = {way: await place.deploy(NAME) for way, place in places.items()}
        async with _only_forks(forked):
            for _ in range(QUICK_PAIRS if quick else PAIRS):
                for way, place in places.items():
                    await place.platform.asleep(NAME)
                    taken[way].append(await _answer_s(urls[way]))
                async with _served(cold, folder) as (answered_s, _):
                    taken[SERVE].append(answered_s)
    serve_s = median(taken[SERVE])
    return [
        Row(way, **spread(times_s), p95_s=_p95(times_s), serve_ratio=median(times_s) / serve_s)
        for way, times_s in taken.items()
    ]


async def _many(folder: Path, quick: bool) -> list[Row]:
    """Deployments of one environment that are called at the same moment, all asleep: their first
    answers, and what all of the machine computed until the last one, for each."""
    rows = []
    for count in [QUICK_CROWD] if quick else CROWDS:
        async with _place(folder / str(count), AUTOMATIC, ports=count) as place:
            names = [f"{NAME}-{number}" for number in range(count)]
            urls = [await place.deploy(name) for name in names]
            async with _only_forks(place):
                for name in names:
                    await place.platform.asleep(name)
                began_s = machine_cpu_s()
                times_s = await asyncio.gather(*map(_answer_s, urls))
                used_ms = 1000 * (machine_cpu_s() - began_s)
        way = f"{count} at once, {FORKED}"
        rows.append(Row(way, **spread(times_s), p95_s=_p95(times_s), cpu_ms=used_ms / count))
    return rows


async def _memory(folder: Path, quick: bool) -> list[Row]:
    """What each of several replicas takes, and one `bentoml serve`, once they have answered."""
    count = QUICK_REPLICAS if quick else REPLICAS
    async with _place(folder / "forked", AUTOMATIC, ports=count) as place:
        await place.deploy(NAME)
        async with _only_forks(place):
            names = [f"{NAME}-{number}" for number in range(count)]
            urls = [await place.deploy(name, min_replicas=1) for name in names]
            answers = [await call(f"{url}/cook") for url in urls]
            sizes = [memory_bytes(process_of(answer["pid"])) for answer in answers]
        async with _served(place, folder) as (_, pid):
            serve_bytes = tree_bytes(pid)
    return [
        Row(
            f"{count} replicas, {FORKED}",
            memory_mib=fmean(sizes) / (1 << 20),
            serve_ratio=fmean(sizes) / serve_bytes,
        ),
        Row(SERVE, memory_mib=serve_bytes / (1 << 20)),
    ]


async def _steady(folder: Path, quick: bool) -> list[Row]:
    """Requests one after another to a replica that was forked and to one that started cold, in
    turns: how many a second, and what each costs the replica."""
    async with _place(folder / "both", AUTOMATIC, ports=2) as place:
        urls = {COLD: await place.deploy(f"{NAME}-0", min_replicas=1)}
        async with _only_forks(place):
            urls[FORKED] = await place.deploy(f"{NAME}-1", min_replicas=1)
        pids = {way: process_of((await call(f"{url}/cook"))["pid"]) for way, url in urls.items()}
        taken_s: dict[str, list[float]] = {FORKED: [], COLD: []}
        used_s: dict[str, list[float]] = {FORKED: [], COLD: []}
        async with aiohttp.ClientSession() as http:
            for _ in range(QUICK_ROUNDS if quick else ROUNDS):
                for way, url in urls.items():
                    began, before_s = time.perf_counter(), cpu_s(pids[way])
                    for _ in range(ROUND_REQUESTS):
                        async with http.post(f"{url}/cook", json={}) as answer:
                            answer.raise_for_status()
                            await answer.read()
                    taken_s[way].append(time.perf_counter() - began)
                    used_s[way].append(cpu_s(pids[way]) - before_s)
    cold_s = median(used_s[COLD])
    return [
        Row(
            f"a request to a replica, {way}",
            rate_per_s=ROUND_REQUESTS / median(taken_s[way]),
            cpu_ms=1000 * median(used_s[way]) / ROUND_REQUESTS,
            cold_ratio=median(used_s[way]) / cold_s,
        )
        for way in urls
    ]


_MEASURES: Measures[Row] = {
    "one": _one,
    "many": _many,
    "memory": _memory,
    "steady": _steady,
}
PARTS = list(_MEASURES)


@asynccontextmanager
async def _place(folder: Path, standby: str, ports: int = 1) -> AsyncIterator[Kitchens]:
    os.mkdir(folder)
    async with kitchens(folder, ports=ports + 1, standby=standby) as place:
        yield place


@asynccontextmanager
async def _served(place: Kitchens, folder: Path) -> AsyncIterator[tuple[float, int]]:
    """One `bentoml serve` of the bento: its first answer after so many seconds, its process id."""
    port = free_range(1)
    argv = (BIN / "bentoml", "serve", place.bento.tag, "--port", str(port))
    began = time.perf_counter()
    environ = place.laptop.environ
    async with running(*argv, log=folder / "serve.log", environ=environ) as child:

        async def answers() -> bool:
            try:
                return bool(await call(f"http://127.0.0.1:{port}/cook"))
            except (OSError, Refused):
                return False

        await until(answers)
        yield time.perf_counter() - began, child.pid


async def _answer_s(url: str) -> float:
    began = time.perf_counter()
    await call(f"{url}/cook")
    return time.perf_counter() - began


@asynccontextmanager
async def _only_forks(place: Kitchens) -> AsyncIterator[None]:
    """Within, there is a template. Raises BenchmarkFailed where a start was cold all the same."""

    async def has_one() -> bool:
        pool = await _pool(place)
        if pool["unforkable"]:
            raise BenchmarkFailed(f"there is no template: {pool['unforkable']}")
        return bool(pool["templates"])

    await until(has_one, TEMPLATE_S)
    before = await _pool(place)
    yield
    after = await _pool(place)
    cold = (after["starts"] - after["hits"]) - (before["starts"] - before["hits"])
    if cold:
        raise BenchmarkFailed(f"{cold} of {after['starts'] - before['starts']} starts were cold")


async def _pool(place: Kitchens) -> dict[str, Any]:
    pool: dict[str, Any]
    (pool,) = (await place.platform.page("standby"))["pools"]
    return pool


def _p95(times_s: Sequence[float]) -> float:
    return quantiles(times_s, n=20, method="inclusive")[-1]
