"""What every page of the dashboard keeps to, in a real browser on a real platform."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.browser.paths import PATHS
from tests.browser.town import Town
from tests.browser.visitor import NARROW, WIDE, Visitor, needs_chromium

pytestmark = [
    needs_chromium,
    pytest.mark.one_machine("it starts a platform of its own"),
]
FIRST_VISIT_BYTES = 120_000


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_of_use_accessible_and_asks_nobody_else(visitor: Visitor, path: str) -> None:
    await visitor.open(path)
    assert await visitor.page.get_attribute("main", "data-page")
    found = {"light": await visitor.violations()}
    await visitor.page.emulate_media(color_scheme="dark")
    found["dark"] = await visitor.violations()
    await visitor.page.set_viewport_size({"width": NARROW, "height": 800})
    await visitor.open(path)
    found["narrow"] = await visitor.violations() + await visitor.sideways()
    assert found == {"light": [], "dark": [], "narrow": []}
    assert visitor.complaints == []
    assert visitor.elsewhere == []


@pytest.mark.parametrize("width", [NARROW, WIDE])
async def test_pages_without_scripts_are_accessible_too(
    town: Town, browser: Browser, width: int
) -> None:
    async with Visitor.coming(browser, town.platform.url, width=width) as visitor:
        for path in ("/login", f"{PATHS[2]}", "/deployments/nobody"):
            await visitor.page.goto(town.platform.url + path)
            assert await visitor.violations() == []
            assert await visitor.sideways() == []


async def test_a_first_visit_is_small(town: Town, browser: Browser) -> None:
    sizes: dict[str, float] = {}
    async with Visitor.coming(browser, town.platform.url) as visitor:
        await visitor.sign_in(town.platform.token, then="/login")
        session = await visitor.page.context.new_cdp_session(visitor.page)
        await session.send("Network.enable")
        await session.send("Network.clearBrowserCache")
        urls: dict[str, str] = {}
        session.on(
            "Network.responseReceived",
            lambda event: urls.update({event["requestId"]: event["response"]["url"]}),
        )
        session.on(
            "Network.loadingFinished",
            lambda event: sizes.update(
                {urls.get(event["requestId"], "?"): event["encodedDataLength"]}
            ),
        )
        await visitor.open("/deployments/chat")
    assert sum("/static/" in url for url in sizes) > 10
    assert sum(sizes.values()) <= FIRST_VISIT_BYTES, sizes
