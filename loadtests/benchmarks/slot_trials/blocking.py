"""An async service that blocks its loop: the number that is learnt, beside fixed ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.benchmarks.slot_trials.pairs import project
from loadtests.benchmarks.slot_trials.table import Row
from loadtests.harness.bounds import at_least, at_most, verdict
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.installation import Installation, deploy, installation
from loadtests.harness.report import median
from loadtests.systems.load import closed_loop

BLOCKS = """class Blocks:
    @bentoml.api
    async def block(self, text: str) -> str:
        time.sleep(0.1)  # in its loop, which is what is measured
        return "done"
"""
UP_TO_FOUR = {"scaling": {"min_replicas": 1, "max_replicas": 4}}
CLIENTS = 16
LEARNT = 0
NUMBERS = (1, 2, 4, 8)
LEARNT_BY_S, SECONDS, ROUNDS = 30.0, 15.0, 3
LOOK_S = 0.25


@dataclass(frozen=True)
class Sample:
    answers_per_s: float
    """Counted from `LEARNT_BY_S` on."""
    most: int
    """The highest number of slots that a replica had since then."""
    low_s: float
    """From the first call until no replica had more than 2 slots."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    source = project(folder / "blocks", BLOCKS)
    samples: dict[int, list[Sample]] = {number: [] for number in (LEARNT, *NUMBERS)}
    async with installation(folder) as here:
        for turn in range(1 if quick else ROUNDS):
            for number in samples if turn % 2 else reversed(samples):
                samples[number].append(await _sample(here, source, number))
    rates = {number: [one.answers_per_s for one in samples[number]] for number in samples}
    best = [max(fixed) for fixed in zip(*(rates[number] for number in NUMBERS), strict=True)]
    share = median(own / of for own, of in zip(rates[LEARNT], best, strict=True))
    learnt = samples[LEARNT]
    most, low_s = max(one.most for one in learnt), max(one.low_s for one in learnt)
    two, nearly = at_most(2), at_least(0.9)
    fixed: dict[str, Any] = {f"fixed_{number}": median(rates[number]) for number in NUMBERS}
    figure = f"{CLIENTS} clients, a loop blocked for 0.1 s, up to 4 replicas"
    return [
        Row(
            f"{figure}: most slots, from 30 s on",
            two.text,
            verdict(two.holds(most)),
            most,
            digits=0,
        ),
        Row("the same: at 2 or less from then on, s, the slowest", ours=low_s, digits=1),
        Row("the same: answers/s", ours=median(rates[LEARNT]), **fixed, digits=1),
        Row(
            "the same: x the best number of its round",
            nearly.text,
            verdict(nearly.holds(share)),
            share,
        ),
    ]


async def _sample(here: Installation, source: Path, number: int) -> Sample:
    """One new deployment, of which the platform has learnt nothing yet."""
    name = f"fixed-{number}" if number else "learnt"
    labels = {"hotplate/concurrency": number} if number else {}
    url, _ = await deploy(here, source, name, {"Blocks": UP_TO_FOUR}, labels)
    seen: list[tuple[float, int]] = []
    looks = asyncio.create_task(_look(here, name, seen))
    try:
        async with closed_loop(
            f"{url}/block", CLIENTS, SECONDS, here.home, warmup_s=LEARNT_BY_S
        ) as load:
            pass
    finally:
        looks.cancel()
        with suppress(asyncio.CancelledError):
            await looks
        await here.bentoml("deployment", "delete", name, folder=here.home)
    if load.refused or load.failed:
        raise BenchmarkFailed(f"{name}: {load.refused} answers were errors, {load.failed} failed")
    return Sample(
        load.answers_per_s,
        max(most for at_s, most in seen if at_s >= LEARNT_BY_S),
        max((at_s for at_s, most in seen if most > 2), default=0.0),
    )


async def _look(here: Installation, name: str, seen: list[tuple[float, int]]) -> None:
    """Notes, over and over, the seconds since it began and the most slots that a replica has."""
    began = time.monotonic()
    while True:
        replicas = (await here.deployment(name))["live"]["replicas"]
        numbers = [replica["slots"]["number"] for replica in replicas if replica["slots"]]
        if numbers:
            seen.append((time.monotonic() - began, max(numbers)))
        await asyncio.sleep(LOOK_S)
