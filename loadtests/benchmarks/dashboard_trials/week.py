"""`/deployments/NAME` with seven days of points, and the cursor that goes through its charts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

from playwright.async_api import Page

from hotplate.deploy.phases import unix_now
from hotplate.platform.series.levels import COARSE, FINE, MEDIUM
from hotplate.platform.series.points import Point
from hotplate.platform.series.writing import put
from hotplate.platform.store.records import DecisionRecord
from loadtests.benchmarks.dashboard_trials.table import Row, bounded, shown
from loadtests.benchmarks.dashboard_trials.window import browser, usable_s, window
from loadtests.harness.bounds import at_least, at_most
from loadtests.systems.busy_api import BusyApi, busy_api

TRIES = 10
WEEK_S = 7 * 86_400
DECISIONS = 1000
MOVES = 300
FRAMES = """() => {
  window.framesMs = [];
  const frame = (at) => (framesMs.push(at), requestAnimationFrame(frame));
  requestAnimationFrame(frame);
}"""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    async with busy_api(folder, 20) as api, browser() as chromium:
        _fill(api)
        url = f"{api.url}/deployments/d0?range=7d"
        usable = []
        for _ in range(TRIES):
            async with window(chromium, api.url, api.token) as visitor:
                usable.append(await usable_s(visitor.page, url))
        async with api.changing(5), window(chromium, api.url, api.token) as visitor:
            await usable_s(visitor.page, url)
            points = await visitor.page.evaluate(
                "document.querySelector('figure[data-chart=requests] canvas') && 1"
            )
            frames_s = await _moved(visitor.page)
            complaints = visitor.complaints
    gaps_s = [after - before for before, after in pairwise(frames_s)]
    return [
        bounded("7 days: usable, median s", at_most(1), median(usable), TRIES),
        shown("7 days: usable, slowest s", max(usable), TRIES),
        bounded("charts that are drawn", at_least(1), points or 0),
        bounded(
            "cursor, frames/s",
            at_least(30),
            len(gaps_s) / (frames_s[-1] - frames_s[0]),
            len(gaps_s),
        ),
        shown("cursor, longest time between two frames, ms", 1000 * max(gaps_s), len(gaps_s)),
        bounded("wrong words of the browser's", at_most(0), len(complaints)),
    ]


async def _moved(page: Page) -> list[float]:
    """When frames were drawn while the cursor went to and fro, seconds."""
    box = await page.locator("figure[data-chart=requests] .plot").bounding_box()
    assert box is not None
    await page.evaluate(FRAMES)
    for number in range(MOVES):
        share = abs((number / 60) % 2 - 1)
        await page.mouse.move(box["x"] + 60 + share * (box["width"] - 80), box["y"] + 40)
    said = await page.evaluate("framesMs")
    assert await page.locator(".decision", has_text="Why, at").count() == 1
    return [at / 1000 for at in said]


def _fill(api: BusyApi) -> None:
    """Points of all three lengths, and as many decisions as are asked for."""
    now, rng = int(unix_now()), random.Random(2)
    key = api.ids[0]
    for level in (FINE, MEDIUM, COARSE):
        first = now - min(WEEK_S, level.kept_s - level.block_s)
        steps = range(first - first % level.step_s, now - level.step_s, level.step_s)
        put(api.store.series, level, {key: [(at, _point(rng, level.step_s)) for at in steps]})
    newest = datetime.now(UTC)
    api.store.history.add_decisions(
        key,
        [
            DecisionRecord(
                at=newest - timedelta(seconds=WEEK_S * (DECISIONS - number) / DECISIONS),
                revision=1,
                service="Echo",
                replicas=number % 3,
                desired=(number + 1) % 3,
                demand=number,
                reason=f"{number % 3} of 3: demand {number}, which a slot each serves",
            )
            for number in range(DECISIONS)
        ],
    )


def _point(rng: random.Random, step_s: int) -> Point:
    times = {
        f"{name}.{bucket}": rng.randrange(200)
        for name in ("wait_s", "first_byte_s", "answer_s")
        for bucket in range(3, 9)
    }
    return {
        "requests": rng.randrange(999),
        "errors": rng.randrange(9),
        "refused": rng.randrange(9),
        "in_flight": rng.randrange(9),
        "queued": rng.randrange(9),
        "wanted_s": 2.0 * step_s,
        "ready_s": 1.5 * step_s,
        "cold_starts": rng.randrange(2),
        "replica_s.busy": rng.random() * step_s,
        "replica_s.idle": rng.random() * step_s,
        "gpu_s.busy": rng.random() * step_s,
        "gpu_s.idle": rng.random() * step_s,
        "memory_bytes": float(rng.randrange(1 << 32)),
        "awake": 1,
        "seen_s": float(step_s),
        **times,
    }
