"""A window of a real browser, timed by itself."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from loadtests.harness.child_process import BenchmarkFailed
from tests.support.memory import memory_of
from tests.support.patience import PATIENCE_S

USABLE = """
new MutationObserver(() => {
  const main = document.querySelector("main[data-page]");
  if (main && !main.hasAttribute("aria-busy")) window.usableMs ??= performance.now();
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
NOTED = """(name) => new Promise((done) => {
  const look = () => (name in window ? done(window[name]) : setTimeout(look, 5));
  look();
})"""


@dataclass
class Window:
    """What one person looks at."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Wrong words of the browser's."""

    def hear(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(said.text)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """The one of this machine, without a screen. Raises BenchmarkFailed where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise BenchmarkFailed("there is no Chromium; install it (Debian: apt-get install chromium)")
    async with async_playwright() as playwright:
        # Root has no sandbox.
        found = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        await found.close()


@asynccontextmanager
async def window(browser: Browser, url: str, token: str) -> AsyncIterator[Window]:
    """Somebody who has signed in, with nothing cached."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    opened = Window(await context.new_page())
    opened.page.on("console", opened.hear)
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    await opened.page.add_init_script(USABLE)
    await context.request.post(f"{url}/login", form={"token": token})
    yield opened
    await context.close()


async def usable_s(page: Page, url: str) -> float:
    """From when the page was asked for until it was of use."""
    await page.goto(url, wait_until="commit")
    return float(await noted(page, "usableMs")) / 1000


async def noted(page: Page, name: str) -> Any:
    """What the page keeps under that name, once it does. No text may be run as a script there, as
    `wait_for_function` has it."""
    async with asyncio.timeout(PATIENCE_S):
        return await page.evaluate(NOTED, name)


async def heap_bytes(page: Page) -> float:
    """What scripts of the page still use."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await session.send("HeapProfiler.collectGarbage")
    found = (await session.send("Performance.getMetrics"))["metrics"]
    await session.detach()
    return float(next(one["value"] for one in found if one["name"] == "JSHeapUsedSize"))


def memory_bytes() -> int:
    """Of all processes of browsers that this process has started, with their parts of what they
    share."""
    return sum(memory_of(pid).get("pss", 0) for pid in _browsers())


def _browsers() -> Iterator[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue
        parents[int(folder.name)] = (int(rest.split()[1]), "chromium" in name)
    own = int(Path("/proc/self").readlink().name)
    for pid, (parent, is_browser) in parents.items():
        while parent in parents and parent != own:
            parent = parents[parent][0]
        if is_browser and parent == own:
            yield pid
