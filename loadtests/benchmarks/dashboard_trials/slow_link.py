"""The first page over 500 kbit/s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from loadtests.benchmarks.dashboard_trials.table import Row, bounded, shown
from loadtests.benchmarks.dashboard_trials.window import browser, usable_s, window
from loadtests.harness.bounds import at_most
from loadtests.systems.busy_api import busy_api

BYTES_PER_S = 500_000 / 8
LATENCY_MS = 100
TRIES = 5
PAGES = ("/", "/deployments", "/deployments/d0")


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    rows = []
    async with busy_api(folder, 20) as api, browser() as chromium, api.changing(5):
        for path in PAGES:
            usable, fetched = [], 0.0
            for _ in range(TRIES):
                async with window(chromium, api.url, api.token) as visitor:
                    session = await visitor.page.context.new_cdp_session(visitor.page)
                    await session.send("Network.enable")
                    await session.send(
                        "Network.emulateNetworkConditions",
                        {
                            "offline": False,
                            "latency": LATENCY_MS,
                            "downloadThroughput": BYTES_PER_S,
                            "uploadThroughput": BYTES_PER_S,
                        },
                    )
                    usable.append(await usable_s(visitor.page, api.url + path))
                    fetched = await visitor.page.evaluate(
                        "performance.getEntries().reduce((sum, one) =>"
                        " sum + (one.transferSize ?? 0), 0) / 1000"
                    )
            rows.append(bounded(f"{path}: usable, median s", at_most(4), median(usable), TRIES))
            rows.append(shown(f"{path}: fetched until then, KB", fetched))
    return rows
