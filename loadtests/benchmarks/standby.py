"""An embedding model from zero to its first answer, and from one replica to five: without a warm
process, with a standby, and forked from a template."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp

from loadtests.harness.child_process import ROOT, BenchmarkFailed
from loadtests.harness.installation import (
    TOKEN,
    Installation,
    deploy,
    installation,
    save_model,
    serving,
    until,
)
from loadtests.harness.parts import Measures, measured
from loadtests.harness.report import StartRow, column, median, spread
from tests.support.memory import tree_bytes
from tests.support.services.bentos import ME, SLEEPY
from tests.support.services.calling import Refused, call, process_of

PROJECT = ROOT / "examples" / "embedder"
NAME = "embedder"
PAIRS, ROUNDS = 10, 5
MOST = 5
READY_S = 60.0
ANSWER_S = 120.0
COLD, WARM, FORKED = "without", "with a warm standby", "forked from a template"
WAYS: dict[str, dict[str, Any]] = {
    COLD: {"mode": "fixed", "count": 0},
    WARM: {"mode": "fixed", "count": 1},
    FORKED: {"mode": "automatic", "min_starts": 1},
}
"""The platform's settings for each."""

GROWN = {"Embedder": {"scaling": {**SLEEPY, "min_replicas": 1, "max_replicas": MOST}}}
DRAWS = (
    '''
    @bentoml.api
    def draw(self) -> dict[str, object]:
        """What no other replica may have, and what each has to have."""
        import random
        import tempfile
        import time
        import uuid

        import numpy

        time.sleep(0.2)  # so that requests at the same time are on all replicas
        (vector,) = type(self).embed.func(self, ["hello"])
        with tempfile.NamedTemporaryFile() as file:
            drawn = [random.random(), numpy.random.random(), torch.rand(1).item()]
            drawn += [uuid.uuid1().hex, uuid.uuid4().hex, os.urandom(8).hex(), file.name]
        return {"pid": me(), "drawn": list(map(str, drawn)), "vector": vector}


import os
'''
    + ME
)
"""What is added to the example's service."""


@dataclass(frozen=True)
class Row(StartRow):
    process_s: float | None = column("process s", 2)
    init_s: float | None = column("init s", 2)
    memory_mib: float | None = column("warm process MiB", 0)
    pair_ratio: float | None = column("x without, median of pairs", 3)
    replica_mib: float | None = column("memory of one MiB", 0)
    serve_ratio: float | None = column("x bentoml serve", 3)
    drawn: float | None = column("draws, all different")


@dataclass(frozen=True)
class Sample:
    seconds: float
    phases_s: dict[str, float]
    memory_bytes: int
    """The warm process's, before the start."""


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    rows: list[Row] = []
    for part in parts or PARTS:
        rows += await measured(_MEASURES, part, folder, quick)
    return rows


async def _first(folder: Path, quick: bool) -> list[Row]:
    """One start from zero after another, the three ways in turn."""
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
    async with _starting(here, way, 1) as before:
        seconds = await _first_answer(url)
    (replica,) = (await here.deployment(NAME))["live"]["replicas"]
    phases_s = {
        phase["name"]: phase["end"] - phase["start"]
        for phase in replica["phases"]
        if phase["end"] is not None
    }
    return Sample(seconds, phases_s, before["memory_bytes"])


async def _grown(folder: Path, quick: bool) -> list[Row]:
    """From one replica to five, cold and forked in turns: from the decision until all are ready,
    what each of the four takes beside a `bentoml serve`, and what they draw."""
    taken_s: dict[str, list[float]] = {COLD: [], FORKED: []}
    sizes: dict[str, list[int]] = {COLD: [], FORKED: []}
    answers: dict[str, list[dict[str, Any]]] = {COLD: [], FORKED: []}
    project = folder / "project"
    shutil.copytree(PROJECT, project)
    with (project / "service.py").open("a") as source:
        source.write(DRAWS)
    (folder / "platform").mkdir()
    async with installation(folder / "platform") as here:
        await save_model(here, PROJECT)
        await _standbys(here, {"calm_s": 0.0, "memory_share": 0.9})
        url, tag = await deploy(here, project, NAME, GROWN)
        for turn in range(1 if quick else ROUNDS):
            for way in taken_s if turn % 2 else reversed(taken_s):
                await _standbys(here, WAYS[way])
                old = (await call(f"{url}/draw"))["pid"]
                async with _starting(here, way, MOST - 1):
                    taken_s[way].append(await _grow(here))
                found = [one for one in await _one_of_each(url) if one["pid"] != old]
                answers[way] += found
                sizes[way] += [tree_bytes(process_of(one["pid"])) for one in found]
                await _scale(here, 1)
        serve_bytes = await _serve_bytes(here, tag, folder / "serve.log")
    _check(answers)
    return [
        Row(
            f"1 to {MOST} replicas ready, {way}",
            **spread(taken_s[way]),
            replica_mib=fmean(sizes[way]) / (1 << 20),
            serve_ratio=fmean(sizes[way]) / serve_bytes,
            drawn=sum(len(one["drawn"]) for one in answers[way]),
        )
        for way in taken_s
    ]


async def _grow(here: Installation) -> float:
    """Seconds from the decision that there be five until the last of the four is ready."""
    before = {one["id"] for one in await _scale(here, 1)}
    new = [one for one in await _scale(here, MOST) if one["id"] not in before]
    wanted_at = min(datetime.fromisoformat(one["wanted_at"]) for one in new)
    ready_at = max(datetime.fromisoformat(one["ready_at"]) for one in new)
    return (ready_at - wanted_at).total_seconds()


async def _scale(here: Installation, replicas: int) -> list[dict[str, Any]]:
    """The replicas, once there are so many and all are ready."""
    labels = [{"key": "hotplate/schedule", "value": f"* * * * *={replicas}"}]
    config = json.dumps({"name": NAME, "services": GROWN, "labels": labels})
    await here.bentoml("deployment", "update", "--config-dict", config, folder=here.home)
    found: list[dict[str, Any]] = []

    async def settled() -> bool:
        found[:] = (await here.deployment(NAME))["live"]["replicas"]
        return len(found) == replicas and all(one["state"] == "ready" for one in found)

    await until(settled, READY_S, f"there are not {replicas} ready replicas")
    return found


async def _one_of_each(url: str) -> list[dict[str, Any]]:
    """What each of the five replicas answers at first."""
    found: dict[int, dict[str, Any]] = {}

    async def of_all() -> bool:
        for answer in await asyncio.gather(*(call(f"{url}/draw") for _ in range(2 * MOST))):
            found.setdefault(answer["pid"], answer)
        return len(found) == MOST

    await until(of_all, READY_S, f"not all {MOST} replicas answer")
    return list(found.values())


def _check(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Raises BenchmarkFailed where two replicas drew the same, or have another vector."""
    found = [one for way in answers.values() for one in way]
    drawn = [each for one in found for each in one["drawn"]]
    if alike := len(drawn) - len(set(drawn)):
        raise BenchmarkFailed(f"{alike} of {len(drawn)} draws are another replica's too")
    if any(one["vector"] != found[0]["vector"] for one in found):
        raise BenchmarkFailed("the replicas' vectors are not the same")


async def _serve_bytes(here: Installation, tag: str, log: Path) -> int:
    """The memory of `bentoml serve` once it has answered."""
    async with serving(here, tag, log) as (url, child):

        async def answers() -> bool:
            try:
                return bool(await call(f"{url}/draw"))
            except (OSError, Refused):
                return False

        await until(answers, READY_S, "bentoml serve does not answer")
        return tree_bytes(child.pid)


_MEASURES: Measures[Row] = {
    "first": _first,
    "grown": _grown,
}
PARTS = list(_MEASURES)


@asynccontextmanager
async def _starting(here: Installation, way: str, count: int) -> AsyncIterator[dict[str, Any]]:
    """The standbys before the block, in which so many replicas start. Raises BenchmarkFailed, also
    if they did not start this way."""

    async def as_wanted() -> bool:
        pools = (await _standbys(here))["pools"]
        ready, templates = (sum(pool[key] for pool in pools) for key in ("ready", "templates"))
        return bool((ready, templates) == (way != COLD, way == FORKED))

    await until(as_wanted, READY_S, f"there is no start {way}: no or too many warm processes")
    before = await _standbys(here)
    yield before
    after = await _standbys(here)
    hits, forks = (_count(after, key) - _count(before, key) for key in ("hits", "forks"))
    if (hits, forks) != (count * (way != COLD), count * (way == FORKED)):
        raise BenchmarkFailed(f"not all of {count} started {way}: {after['pools']}")


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
