"""Somebody who looks at the dashboard with a real browser, and what the browser complains of."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; install it (Debian: apt-get install chromium)"
)
Look = Literal["light", "dark"]
NARROW, WIDE = 360, 1280
USABLE_MS = 20_000
FIGURES = """() => [...document.querySelectorAll('main [data-field]')].map(one => ({
  source: one.dataset.source, field: one.dataset.field, value: one.dataset.value,
  text: one.innerText,
  names: Object.fromEntries(['deployment', 'replica', 'revision', 'service', 'version', 'node',
    'role', 'path', 'pool', 'environment', 'member', 'token', 'organization', 'line', 'bento',
    'model', 'secret', 'event', 'decision', 'start', 'phase']
    .map(key => [key, one.closest(`main [data-${key}]`)?.getAttribute(`data-${key}`)])
    .filter(([, name]) => name))
}))"""

BARE = """() => {
  const known = '[data-field], h1, h2, h3, th, dt, label, a, code, pre, kbd, button, ' +
    'bdi:not(.figure), [aria-hidden=true], .log, .picker, details.points';
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  const found = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    if (/\\d/.test(text.data) && !/^p\\d\\d\\s*$/.test(text.data) &&
        !text.parentElement.closest(known))
      found.push(text.parentElement.outerHTML.slice(0, 160));
  return found;
}"""
"""Numbers that stand in no figure. Names, percentiles, headings, ranges, what is entered, and the
points of charts beside their keys are none."""


@asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    """The browser of this machine, without a window."""
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", *flags]  # root has no sandbox
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


@dataclass
class Visitor:
    """One window; a wrong word of the browser's is kept in `complaints`."""

    page: Page
    url: str
    unserved: tuple[re.Pattern[str], ...] = ()
    """Routes that this API does not have, so that pages do without them."""
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    """What was asked of anybody but the platform."""

    @classmethod
    @asynccontextmanager
    async def coming(
        cls,
        browser: Browser,
        url: str,
        look: Look = "light",
        width: int = WIDE,
        *,
        zone: str | None = None,
    ) -> AsyncIterator[Visitor]:
        """`zone` is the time zone of the browser, else this machine's."""
        context = await browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=look,
            timezone_id=zone,
        )
        page = await context.new_page()
        visitor = cls(page, url)
        page.on("console", visitor._heard)
        page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        page.on("request", visitor._asked)
        await page.add_init_script(
            "addEventListener('securitypolicyviolation', event => "
            "console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`))"
        )
        yield visitor
        await context.close()

    async def sign_in(self, token: str, then: str = "/login") -> None:
        """With a token, as everybody may."""
        await self.page.goto(f"{self.url}/login?next={then}")
        await self.page.fill("#token", token)
        await self.page.click("form[action='/login'] button")
        await self.page.wait_for_load_state()
        served = await (await self.page.request.get(f"{self.url}/openapi.json")).json()
        self.unserved = tuple(
            pattern
            for path, pattern in LATER.items()
            if not any(each.endswith(path) for each in served["paths"])
        )

    async def open(self, path: str) -> None:
        """Until the page is of use."""
        await self.page.goto(self.url + path)
        await self.usable()

    async def usable(self) -> None:
        await self.page.wait_for_selector("main[data-page]:not([aria-busy])", timeout=USABLE_MS)

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def figures(self) -> list[dict[str, Any]]:
        """What the page shows, each with where it comes from."""
        found: list[dict[str, Any]] = await self.page.evaluate(FIGURES)
        return found

    async def bare_numbers(self) -> list[str]:
        """The elements of numbers that do not say where they come from."""
        found: list[str] = await self.page.evaluate(BARE)
        return found

    async def violations(self) -> list[str]:
        """What axe finds."""
        results = await Axe().run(self.page)
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]} ({len(one['nodes'])})"
            for one in results.response["violations"]
        ]

    async def sideways(self) -> list[str]:
        """What sticks out of the window on its right."""
        found: list[str] = await self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
            [...document.querySelectorAll('body *')]
              .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
              .map(one => one.outerHTML.slice(0, 120)).slice(0, 5)"""
        )
        return found

    def _heard(self, message: ConsoleMessage) -> None:
        where = message.location.get("url", "")
        if message.type in ("error", "warning") and not any(
            pattern.search(where) for pattern in self.unserved
        ):
            self.complaints.append(f"{message.type}: {message.text} ({where})")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("http", "https") and not request.url.startswith(
            self.url
        ):
            self.elsewhere.append(request.url)


LATER = {
    "/series": re.compile(r"/series\?"),
    "/stream": re.compile(r"/hotplate/stream"),
    "/costs": re.compile(r"/costs\?"),
    "/models/{name}/{version}": re.compile(r"/hotplate/models/"),
}
"""Parts of the API that pages show, and without which they are of use too."""
