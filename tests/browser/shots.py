"""`make shots`: pictures of every page, light, dark and 360 px wide, in `.shots/`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser

from tests.browser.paths import PATHS
from tests.browser.town import Town
from tests.browser.visitor import CHROMIUM, NARROW, WIDE, Look, Visitor, chromium

FOLDER = Path(".shots")
KINDS: tuple[tuple[Look, int], ...] = (("light", WIDE), ("dark", WIDE), ("light", NARROW))
LOAD_S = 90
"""So that charts have something to show."""
DRAWN_MS = 1000


async def main() -> None:
    """Needs Chromium."""
    with tempfile.TemporaryDirectory(prefix="hotplate-shots-") as folder:
        town = Town(Path(folder))
        try:
            await town.begin()
            await town.call("chat", 5)
            await town.break_one()
            await asyncio.sleep(LOAD_S)
            async with chromium() as browser:
                for look, width in KINDS:
                    await _taken(browser, town, look, width)
            await town.end()
        finally:
            town.platform.destroy()


async def _taken(browser: Browser, town: Town, look: Look, width: int) -> None:
    async with Visitor.coming(browser, town.platform.url, look, width) as visitor:
        await visitor.page.goto(f"{town.platform.url}/login")
        await _kept(visitor, "login", look, width)
        await visitor.sign_in(town.platform.token)
        for path in (*PATHS, "/deployments/nobody"):
            if path.endswith("nobody"):
                await visitor.page.goto(town.platform.url + path)
            else:
                await visitor.open(path)
            await visitor.page.wait_for_timeout(DRAWN_MS)
            await _kept(visitor, path.strip("/").replace("/", "-") or "overview", look, width)


async def _kept(visitor: Visitor, name: str, look: Look, width: int) -> None:
    await visitor.page.screenshot(path=FOLDER / f"{name}.{look}.{width}.png", full_page=True)


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("there is no Chromium; install it (Debian: apt-get install chromium)")
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(main())
