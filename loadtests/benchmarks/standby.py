"""From zero to the first answer of an embedding model: without a warm process, with a standby, and
forked from a template."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from loadtests.harness.child_process import ROOT, BenchmarkFailed
from loadtests.harness.installation import (
    TOKEN,
    Installation,
    deploy,
    installation,
    save_model,
    until,
)
from loadtests.harness.report import StartRow, column, median, spread
from tests.support.services.bentos import SLEEPY

PROJECT = ROOT / "examples" / "embedder"
NAME = "embedder"
PAIRS = 10
READY_S = 60.0
ANSWER_S = 120.0
COLD, WARM, FORKED = "without", "with a warm standby", "forked from a template"
WAYS: dict[str, dict[str, Any]] = {
    COLD: {"mode": "fixed", "count": 0},
    WARM: {"mode": "fixed", "count": 1},
    FORKED: {"mode": "automatic", "min_starts": 1},
}
"""The platform's settings for each."""


@dataclass(frozen=True)
class Row(StartRow):
    process_s: float | None = column("process s", 2)
    init_s: float | None = column("init s", 2)
    memory_mib: float | None = column("warm process MiB", 0)
    pair_ratio: float | None = column("x without, median of pairs", 3)


@dataclass(frozen=True)
class Sample:
    seconds: float
    phases_s: dict[str, float]
    memory_bytes: int
    """The warm process's, before the start."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    samples: dict[str, list[Sample]] = {way: [] for way in WAYS}
    async with installation(folder) as here:
        await save_model(here, PROJECT)
        await _standbys(here, {"calm_s": 0.0, "memory_share": 0.9})
        url, _ = await deploy(here, PROJECT, NAME, {"Embedder": {"scaling": SLEEPY}})
        for pair in range(1 if quick else PAIRS):
            for way in WAYS if pair % 2 else reversed(WAYS):
                samples[way].append(await _sample(here, url, way))
    return [_row(way, samples[way], samples[COLD]) for way in WAYS]


async def _sample(here: Installation, url: str, way: str) -> Sample:
    """One start from zero. Raises BenchmarkFailed, also if it was another than this."""
    await _standbys(here, WAYS[way])
    await here.asleep(NAME)

    async def as_wanted() -> bool:
        pools = (await _standbys(here))["pools"]
        ready, templates = (sum(pool[key] for pool in pools) for key in ("ready", "templates"))
        return bool((ready, templates) == (way != COLD, way == FORKED))

    await until(as_wanted, READY_S, f"there is no start {way}: no or too many warm processes")
    before = await _standbys(here)
    seconds = await _first_answer(url)
    after = await _standbys(here)
    hits, forks = (_count(after, key) - _count(before, key) for key in ("hits", "forks"))
    if (hits, forks) != (way != COLD, way == FORKED):
        raise BenchmarkFailed(f"a start {way} was none: {after['pools']}")
    (replica,) = (await here.deployment(NAME))["live"]["replicas"]
    phases_s = {
        phase["name"]: phase["end"] - phase["start"]
        for phase in replica["phases"]
        if phase["end"] is not None
    }
    return Sample(seconds, phases_s, before["memory_bytes"])


async def _first_answer(url: str) -> float:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        began = time.perf_counter()
        async with session.post(f"{url}/embed", json={"sentences": ["hello"]}) as answer:
            if answer.status != 200:
                raise BenchmarkFailed(f"{url}: {answer.status} {await answer.text()}")
            await answer.read()
        return time.perf_counter() - began


async def _standbys(here: Installation, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """The platform's standbys, after these settings were made."""
    url = f"{here.url}/api/v1/hotplate/standby"
    headers = {"X-YATAI-API-TOKEN": TOKEN}
    async with aiohttp.ClientSession(headers=headers) as http:
        asked = http.get(url) if settings is None else http.put(url, json={"settings": settings})
        async with asked as answer:
            if answer.status != 200:
                raise BenchmarkFailed(f"{url}: {answer.status} {await answer.text()}")
            found: dict[str, Any] = await answer.json()
            return found


def _count(shown: dict[str, Any], key: str) -> int:
    return sum(pool[key] for pool in shown["pools"])


def _row(way: str, samples: Sequence[Sample], cold: Sequence[Sample]) -> Row:
    memory_bytes = median(sample.memory_bytes for sample in samples)
    ratios = [one.seconds / other.seconds for one, other in zip(samples, cold, strict=True)]
    return Row(
        way,
        **spread([sample.seconds for sample in samples]),
        process_s=median(sample.phases_s.get("process", 0.0) for sample in samples),
        init_s=median(sample.phases_s.get("init", 0.0) for sample in samples),
        memory_mib=memory_bytes / (1 << 20) or None,
        pair_ratio=None if way == COLD else median(ratios),
    )
