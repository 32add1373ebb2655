"""One platform with something to look at, for all tests of the dashboard that a worker runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser

from tests.browser.town import Town
from tests.browser.visitor import Visitor, chromium


@pytest.fixture(scope="package")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """It ends with Ctrl-C."""
    town = Town(tmp_path_factory.mktemp("town"))
    try:
        asyncio.run(town.begin())
        yield town
        asyncio.run(town.end())
    finally:
        town.platform.destroy()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def visitor(town: Town, browser: Browser) -> AsyncIterator[Visitor]:
    """Somebody who has signed in as an operator."""
    async with Visitor.coming(browser, town.platform.url) as visitor:
        await visitor.sign_in(town.platform.token)
        yield visitor
