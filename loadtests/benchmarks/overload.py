"""200 clients on 2 slots of 50 ms (40 answers/s at best); then clients that leave after 2 s."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.fronts import (
    AIOHTTP,
    DIRECT,
    HAPROXY,
    HAPROXY_ABORT,
    OURS,
    Front,
    installed,
    opened,
)
from loadtests.load import Load, clients
from loadtests.report import column, median

FRONTS = [DIRECT, OURS, AIOHTTP, HAPROXY, HAPROXY_ABORT]
CLIENTS = 200
SLOTS = 2
WORK_S = 0.05
PATIENCE_S = 2.0


@dataclass(frozen=True)
class Row:
    front: str
    answers_per_s: float | None = column("answers/s", 1)
    p50_s: float | None = column("p50 s", 1)
    most_at_once: int | None = column("most at once")
    leaving_answers_per_s: float | None = column("leaving: answers/s", 1)
    leaving_refused_per_s: float | None = column("leaving: refused/s", 1)
    leaving_most_at_once: int | None = column("leaving: most at once")
    note: str = ""


@dataclass(frozen=True)
class Sample:
    load: Load
    most_at_once: int


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rounds = 1 if quick else 3
    patient: dict[str, list[Sample]] = defaultdict(list)
    leaving: dict[str, list[Sample]] = defaultdict(list)
    for number in range(rounds):
        # Side by side, fronts and variants alike: such a load hardly uses the processor.
        stayed, left = await asyncio.gather(
            _round(folder / f"{number}-patient", 0.0, quick),
            _round(folder / f"{number}-leaving", PATIENCE_S, quick),
        )
        for name in stayed:
            patient[name].append(stayed[name])
            leaving[name].append(left[name])
    rows: list[Row] = []
    for name in FRONTS:
        if installed(name):
            rows.append(_row(name, patient[name], leaving[name]))
        else:
            rows.append(Row(name, note="not installed"))
    return rows


async def _round(folder: Path, patience_s: float, quick: bool) -> dict[str, Sample]:
    """Fresh fronts and backends each time: the last round's leftovers run on for long."""
    async with opened(FRONTS, SLOTS, folder) as fronts:
        samples = await asyncio.gather(
            *(_sample(front, folder, patience_s, quick) for front in fronts.values())
        )
        return dict(zip(fronts, samples, strict=True))


async def _sample(front: Front, folder: Path, patience_s: float, quick: bool) -> Sample:
    """Ten seconds are two whole waves of the clients that nothing holds back."""
    warmup_s, seconds = (0.5, 2.0) if quick else (5.0, 10.0)
    url = f"{front.url}/work/{WORK_S}"
    times = {"warmup_s": warmup_s, "patience_s": patience_s}
    async with clients(url, CLIENTS, seconds, folder, **times) as load:
        return Sample(load, await front.most_at_once())


def _row(name: str, patient: list[Sample], leaving: list[Sample]) -> Row:
    return Row(
        name,
        answers_per_s=median(one.load.answers_per_s for one in patient),
        p50_s=_p50_s(patient),
        most_at_once=max(one.most_at_once for one in patient),
        leaving_answers_per_s=median(one.load.answers_per_s for one in leaving),
        leaving_refused_per_s=median(one.load.refused / one.load.seconds for one in leaving),
        leaving_most_at_once=max(one.most_at_once for one in leaving),
    )


def _p50_s(samples: list[Sample]) -> float | None:
    """None when nobody was answered."""
    answered = [one.load.p50_ms / 1000 for one in samples if one.load.answered]
    return median(answered) if answered else None
