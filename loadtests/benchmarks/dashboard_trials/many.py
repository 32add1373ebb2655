"""`/deployments` with 1,000 of them, of which 200 change each second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from playwright.async_api import Page

from loadtests.benchmarks.dashboard_trials.table import Row, bounded, p95, shown
from loadtests.benchmarks.dashboard_trials.window import (
    browser,
    heap_bytes,
    memory_bytes,
    usable_s,
    window,
)
from loadtests.harness.bounds import at_least, at_most
from loadtests.systems.busy_api import BusyApi, busy_api

DEPLOYMENTS, CHANGING = 1000, 200
TRIES = 10
LOOKED_AT_S, QUICK_S = 600.0, 60.0
"""How long its memory is looked at."""
LOOK_S = 15.0
FLAT = 1.05
"""How much more the last third of that time may use than the first."""
DRAWN = """async () => {
  const { listen } = await import("hotplate/live");
  window.drawnMs = [];
  listen("deployments", ({ data }) => {
    if (!data || data.whole) return;
    const began = window.event.timeStamp;
    requestAnimationFrame(() => setTimeout(() => drawnMs.push(performance.now() - began)));
  });
}"""
"""From when the page is told until the frame is drawn."""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    async with busy_api(folder, DEPLOYMENTS) as api, browser() as chromium:
        usable = []
        async with api.changing(CHANGING):
            for _ in range(TRIES):
                async with window(chromium, api.url, api.token) as visitor:
                    usable.append(await usable_s(visitor.page, f"{api.url}/deployments"))
            async with window(chromium, api.url, api.token) as visitor:
                rows = await _looked_at(api, visitor.page, QUICK_S if quick else LOOKED_AT_S)
                complaints = visitor.complaints
    return [
        bounded("1,000 deployments: usable, median s", at_most(1), median(usable), TRIES),
        shown("1,000 deployments: usable, slowest s", max(usable), TRIES),
        *rows,
        bounded("wrong words of the browser's", at_most(0), len(complaints)),
    ]


async def _looked_at(api: BusyApi, page: Page, lasts_s: float) -> list[Row]:
    await usable_s(page, f"{api.url}/deployments")
    await page.evaluate(DRAWN)
    heap, memory, now = [], [], asyncio.get_running_loop().time
    ends_at = now() + lasts_s
    await asyncio.sleep(LOOK_S)  # until what is needed once is there
    while now() < ends_at:
        heap.append(await heap_bytes(page))
        memory.append(memory_bytes())
        await asyncio.sleep(LOOK_S)
    drawn = await page.evaluate("drawnMs")
    third = max(1, len(heap) // 3)

    def grown(sizes: Sequence[float]) -> float:
        return mean(sizes[-third:]) / mean(sizes[:third])

    return [
        bounded("changes drawn, median ms", at_most(50), median(drawn), len(drawn)),
        bounded("changes drawn, p95 ms", at_most(50), p95(drawn), len(drawn)),
        shown("changes drawn, slowest ms", max(drawn), len(drawn)),
        bounded("changes drawn, of each second's", at_least(0.5), len(drawn) / lasts_s),
        bounded(f"heap, last third by first of {lasts_s:.0f} s", at_most(FLAT), grown(heap)),
        shown("heap at last, MiB", heap[-1] / (1 << 20), len(heap)),
        bounded(f"browser, last third by first of {lasts_s:.0f} s", at_most(FLAT), grown(memory)),
        shown("browser at last, MiB", memory[-1] / (1 << 20), len(memory)),
    ]
