"""What 100 browsers cost the control plane, and how many connections the tabs of one have.

A browser here is a sign-in and a stream of its own, and asks again and again for what a real one
asked for that looked at the same page before.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from playwright.async_api import Browser

from loadtests.benchmarks.dashboard_trials.table import Row, bounded, shown
from loadtests.benchmarks.dashboard_trials.window import browser, usable_s, window
from loadtests.harness.bounds import at_most, exactly
from loadtests.systems.busy_api import busy_api
from loadtests.systems.kitchens import Kitchens, kitchens
from tests.support.memory import memory_bytes
from tests.support.patience import until
from tests.support.processor import cpu_s
from tests.support.services.calling import call

BROWSERS, TABS = 100, 8
LOOKED_S, QUICK_S = 60.0, 20.0
STREAM = "/api/v1/hotplate/stream"
PAGES: Mapping[str, str] = {
    "/": "deployments,events,platform",
    "/deployments": "deployments",
    "/deployments/chat": "deployment:chat",
}
"""What a browser that looks at a page is told of."""
RATE_PER_S = 2.0


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    tabs, platform = folder / "tabs", folder / "platform"
    tabs.mkdir()
    platform.mkdir()
    rows = await _tabs(tabs)
    lasts_s = QUICK_S if quick else LOOKED_S
    async with kitchens(platform) as place, browser() as chromium:
        url = await place.deploy("chat", slots=4, min_replicas=1)
        async with _called(f"{url}/cook"):
            for page, topics in PAGES.items():
                asked = await _asked(chromium, place, page, lasts_s)
                rows += await _cost(place, page, topics, asked, lasts_s)
    return rows


async def _tabs(folder: Path) -> list[Row]:
    async with (
        busy_api(folder, 20) as api,
        browser() as chromium,
        api.changing(5),
        window(chromium, api.url, api.token) as visitor,
    ):
        pages = [visitor.page]
        pages += [await visitor.page.context.new_page() for _ in range(TABS - 1)]
        for number, page in enumerate(pages):
            await page.goto(f"{api.url}/deployments/d{number}")
            await page.wait_for_selector("main[data-page]:not([aria-busy])")
        live = "import('hotplate/live').then(({ connection }) => connection.value.state)"

        async def all_live() -> bool:
            return {await page.evaluate(live) for page in pages} == {"live"}

        await until(all_live)
        return [bounded(f"{TABS} tabs, all live: connections", exactly(1), api.streams)]


@asynccontextmanager
async def _called(url: str) -> AsyncIterator[None]:
    """The deployment is called, so that there is something to tell."""

    async def go_on() -> None:
        while True:
            await call(url, seconds=0.2)
            await asyncio.sleep(1 / RATE_PER_S)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _asked(chromium: Browser, place: Kitchens, path: str, lasts_s: float) -> dict[str, float]:
    """How often in a second a real browser asks for what, once its page is of use; each by the
    path that it asked for last."""
    counts, last = Counter[str](), {}
    async with window(chromium, place.platform.url, place.platform.token) as visitor:
        await usable_s(visitor.page, place.platform.url + path)
        await asyncio.sleep(2)

        def note(url: str) -> None:
            split = urlsplit(url)
            counts[split.path] += 1
            last[split.path] = f"{split.path}?{split.query}"

        visitor.page.on("request", lambda request: note(request.url))
        began = time.monotonic()
        await asyncio.sleep(lasts_s)
        took_s = time.monotonic() - began
    counts.pop(STREAM, None)
    return {last[name]: count / took_s for name, count in counts.items()}


async def _cost(
    place: Kitchens, page: str, topics: str, asked: Mapping[str, float], lasts_s: float
) -> list[Row]:
    pid = place.platform.pid("control-plane")
    alone_share, alone_bytes = await _used(pid, lasts_s)
    async with _readers(place, topics, asked) as readers:
        share, size_bytes = await _used(pid, lasts_s)
    per_s = sum(asked.values())
    return [
        bounded(
            f"{BROWSERS} at {page}: more of a core, %",
            at_most(10),
            100 * (share - alone_share),
        ),
        bounded(
            f"{BROWSERS} at {page}: more memory, MB", at_most(50), (size_bytes - alone_bytes) / 1e6
        ),
        shown(f"{BROWSERS} at {page}: each asks again, in a second", per_s),
        shown(
            f"{BROWSERS} at {page}: each is told, in a second", readers.told / BROWSERS / lasts_s
        ),
        bounded(f"{BROWSERS} at {page}: cut off or refused", at_most(0), len(readers.troubles)),
    ]


async def _used(pid: int, lasts_s: float) -> tuple[float, int]:
    """The share of a core and the memory at the end."""
    before, began = cpu_s(pid), time.monotonic()
    await asyncio.sleep(lasts_s)
    share = (cpu_s(pid) - before) / (time.monotonic() - began)
    return share, memory_bytes(pid)


class _Readers:
    def __init__(self) -> None:
        self.told = 0
        self.troubles: list[str] = []


@asynccontextmanager
async def _readers(
    place: Kitchens, topics: str, asked: Mapping[str, float]
) -> AsyncIterator[_Readers]:
    """As many browsers, all live, each with a sign-in of its own."""
    readers, live = _Readers(), asyncio.Semaphore(0)

    async def read(number: int) -> None:
        jar = aiohttp.CookieJar(unsafe=True)
        connections = aiohttp.TCPConnector(limit=6)
        async with aiohttp.ClientSession(
            place.platform.url, cookie_jar=jar, connector=connections
        ) as http:
            form = {"token": place.platform.token}
            async with http.post("/login", data=form, allow_redirects=False) as signed_in:
                assert signed_in.status == 303, await signed_in.text()
            async with asyncio.TaskGroup() as group:
                group.create_task(follow(http))
                for path, per_s in asked.items():
                    group.create_task(ask(http, path, 1 / per_s, number / BROWSERS))

    async def follow(http: aiohttp.ClientSession) -> None:
        silence = aiohttp.ClientTimeout(total=None, sock_read=40)
        async with http.get(STREAM, params={"topics": topics}, timeout=silence) as told:
            assert told.status == 200, await told.text()
            live.release()
            async for line in told.content:
                readers.told += line.startswith(b"data:")
        readers.troubles.append("a stream has ended")

    async def ask(http: aiohttp.ClientSession, path: str, every_s: float, phase: float) -> None:
        await asyncio.sleep(phase * every_s)
        while True:
            now = int(time.time())
            moved = re.sub(r"from=\d+&to=\d+", f"from={now - 3600}&to={now}", path)
            async with http.get(moved) as answer:
                await answer.read()
                if answer.status != 200:
                    readers.troubles.append(f"{path}: {answer.status}")
            await asyncio.sleep(every_s)

    tasks = [asyncio.create_task(read(number)) for number in range(BROWSERS)]
    try:
        for _ in tasks:
            await live.acquire()
        readers.told = 0
        yield readers
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        readers.troubles += [repr(end) for end in ends if isinstance(end, Exception)]
