"""`bentoml code` without torch: a file saved -> the new answer.

The stock client runs in a terminal. The first part is its own: it waits for the last of several
saves, imports the service and sends what changed. What follows is ours: the old replica ends, and
a new one starts with the files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles

from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import StartRow, column, spread
from loadtests.systems.code_folder import NAME, SERVICE, answer_of, save
from tests.support.end_to_end.code_client import coding
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running

SAVES, QUICK_SAVES = 20, 3
BUILT_S, ANSWERED_S = 600.0, 60.0


@dataclass(frozen=True)
class Row(StartRow):
    p95_s: float | None = column("p95", 2)


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    async with running(folder / "data") as platform:
        laptop = await Laptop.at(folder / "laptop", platform)
        project = laptop.project(NAME, SERVICE)
        save(project, "word 0")
        async with coding(laptop, project) as client:
            await client.begin(NAME)
            url = await platform.url_of(NAME)
            await _answers(url, "word 0", BUILT_S)
            saves = [
                await _saved(platform, project, url, f"word {number}")
                for number in range(1, (QUICK_SAVES if quick else SAVES) + 1)
            ]
            if client.ended:
                raise BenchmarkFailed(f"the client has ended: {client.output[-500:]}")
    sent, answered = ([each[part] for each in saves] for part in (0, 1))
    rest = [whole - part for part, whole in saves]
    return [
        Row("file saved -> new answer", **spread(answered), p95_s=_p95(answered)),
        Row("file saved -> revision, the client's part", **spread(sent), p95_s=_p95(sent)),
        Row("revision -> new answer", **spread(rest), p95_s=_p95(rest)),
    ]


async def _saved(platform: Platform, project: Path, url: str, word: str) -> tuple[float, float]:
    """Seconds from the save to the revision, and to the answer."""
    began = time.time()
    save(project, word)
    answered_s = await _answers(url, word)
    (newest,) = (await platform.ask(NAME, "/revisions?count=1"))["items"]
    return datetime.fromisoformat(newest["created_at"]).timestamp() - began, answered_s


async def _answers(url: str, word: str, within_s: float = ANSWERED_S) -> float:
    """Ask until that is the answer; how long that took in seconds."""
    began = time.monotonic()
    while (took_s := time.monotonic() - began) < within_s:
        if await answer_of(url) == word:
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    raise BenchmarkFailed(f"{word!r} was not answered in {took_s:.0f} s")


def _p95(times_s: Sequence[float]) -> float:
    return quantiles(times_s, n=20, method="inclusive")[18]
