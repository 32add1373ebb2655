"""How soon something that happens is on the screen: a log line, a request, a replica, a status.

The page notes by itself when it shows what it had not shown before (a MutationObserver), on the
clock of this machine, which is also that of the replica, the caller and the platform.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from playwright.async_api import Browser, Page

from loadtests.benchmarks.dashboard_trials.table import Row, bounded, p95, shown
from loadtests.benchmarks.dashboard_trials.window import browser, noted, usable_s, window
from loadtests.harness.bounds import at_most
from loadtests.systems.kitchens import Kitchens, kitchens, service_settings
from tests.support.end_to_end.platform_process import FORKS
from tests.support.services.bentos import KITCHEN
from tests.support.services.calling import call

TRIES, QUICK_TRIES = 20, 5
SERVICE = (
    KITCHEN
    + '''
    @bentoml.api
    def say(self, word: str) -> float:
        """When it was printed, Unix seconds."""
        at = time.time()
        print(word, flush=True)
        return at
'''
)
TERMINATED = ("([data-value^=terminat])", "[data-value^=terminat]")
SEEN = """([name, selector, text]) => {
  const look = () => {
    const all = [...document.querySelectorAll(selector)];
    if (!all.some((one) => one.textContent.includes(text))) return false;
    window[name] = Date.now() / 1000;
    return true;
  };
  if (look()) return;
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  const watch = new MutationObserver(() => look() && watch.disconnect());
  watch.observe(document.body, all);
}"""


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    tries = QUICK_TRIES if quick else TRIES
    rows: list[Row] = []
    async with kitchens(folder, source=SERVICE, standby=FORKS) as place, browser() as chromium:
        await place.deploy("steady", slots=4, min_replicas=1)
        await place.deploy("sleeper")
        for what, trial in (
            ("log line", _log_lines),
            ("request", _requests),
            ("replica", _replicas),
        ):
            rows += _rows(what, await trial(chromium, place, tries))
        late_s, calls_s = await _statuses(chromium, place, tries)
        rows += _rows("status", late_s)
        rows.append(shown("status, of which the call, median s", median(calls_s), tries))
    return rows


def _rows(what: str, late_s: list[float]) -> list[Row]:
    return [
        bounded(f"{what} on the screen, p95 s", at_most(1), p95(late_s), len(late_s)),
        shown(f"{what} on the screen, median s", median(late_s), len(late_s)),
        shown(f"{what} on the screen, slowest s", max(late_s), len(late_s)),
    ]


async def _expect(page: Page, name: str, selector: str, text: str = "") -> None:
    """The page notes when an element that the selector finds has this in its text."""
    await page.evaluate(SEEN, [name, selector, text])


async def _seen(page: Page, name: str) -> float:
    """When that was, Unix seconds."""
    return float(await noted(page, name))


async def _log_lines(chromium: Browser, place: Kitchens, tries: int) -> list[float]:
    url, late_s = await place.platform.url_of("steady"), []
    async with window(chromium, place.platform.url, place.platform.token) as visitor:
        await usable_s(visitor.page, f"{place.platform.url}/deployments/steady/logs")
        for number in range(tries):
            word = f"needle-{number}-"
            await _expect(visitor.page, word, ".log", word)
            printed_at = float(await call(f"{url}/say", word=word))
            late_s.append(await _seen(visitor.page, word) - printed_at)
    return late_s


async def _requests(chromium: Browser, place: Kitchens, tries: int) -> list[float]:
    """One that runs is in flight, as the page of its deployment says."""
    url, late_s = await place.platform.url_of("steady"), []
    figure = "[data-field='totals.in_flight']"
    async with window(chromium, place.platform.url, place.platform.token) as visitor:
        await usable_s(visitor.page, f"{place.platform.url}/deployments/steady")
        for number in range(tries):
            await visitor.page.wait_for_selector(f"{figure}[data-value='0']")
            name = f"request {number}"
            await _expect(visitor.page, name, f"{figure}:not([data-value='0'])")
            asked_at = time.time()
            asking = asyncio.create_task(call(f"{url}/cook", seconds=3.0))
            late_s.append(await _seen(visitor.page, name) - asked_at)
            await asking
    return late_s


async def _replicas(chromium: Browser, place: Kitchens, tries: int) -> list[float]:
    """A replica that is ready, each time another one, from zero."""
    url, late_s = await place.platform.url_of("sleeper"), []
    async with window(chromium, place.platform.url, place.platform.token) as visitor:
        await usable_s(visitor.page, f"{place.platform.url}/deployments/sleeper/replicas")
        for number in range(tries):
            await place.platform.asleep("sleeper")
            ready = "[data-replica] [data-field='live.replicas.state'][data-value=ready]"
            await visitor.page.wait_for_selector(ready, state="detached")
            name = f"replica {number}"
            await _expect(visitor.page, name, ready)
            asking = asyncio.create_task(call(f"{url}/cook", seconds=3.0))
            seen_at = await _seen(visitor.page, name)
            (replica,) = await place.platform.replicas("sleeper")
            late_s.append(seen_at - datetime.fromisoformat(replica["ready_at"]).timestamp())
            await asking
    return late_s


async def _statuses(
    chromium: Browser, place: Kitchens, tries: int
) -> tuple[list[float], list[float]]:
    """From the call that terminates it, or has it run again, to the word in the list; and how long
    the call took."""
    late_s, calls_s = [], []
    row = "tr[data-deployment=sleeper] [data-field=status]"
    await place.platform.asleep("sleeper")
    async with window(chromium, place.platform.url, place.platform.token) as visitor:
        await usable_s(visitor.page, f"{place.platform.url}/deployments")
        for number in range(tries):
            name, ends = f"status {number}", number % 2 == 0
            await _expect(visitor.page, name, row + ("" if ends else ":not") + TERMINATED[ends])
            asked_at = time.time()
            if ends:
                await place.rough.call("POST", "/api/v2/deployments/sleeper/terminate")
            else:
                services = {"Kitchen": service_settings()}
                await place.rough.update("sleeper", place.bento.tag, **services)
            calls_s.append(time.time() - asked_at)
            late_s.append(await _seen(visitor.page, name) - asked_at)
    return late_s, calls_s
