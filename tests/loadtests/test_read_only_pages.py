"""A store that takes no writes, as who looks at the dashboard sees it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from loadtests.systems.faulty_libc import FaultyLibc
from tests.browser.visitor import Visitor, chromium, needs_chromium
from tests.support.end_to_end.platform_process import Platform
from tests.support.patience import PATIENCE_S

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
SHORT = "What is short or failing"
SAYS = "the database cannot be used now"
PATIENCE_MS = PATIENCE_S * 1000


@pytest.fixture
def libc(tmp_path: Path) -> FaultyLibc:
    return FaultyLibc(tmp_path, tmp_path / "data" / "hotplate.db")


@pytest.fixture
async def platform(tmp_path: Path, libc: FaultyLibc) -> AsyncIterator[Platform]:
    with libc:
        platform = Platform(tmp_path / "data", environ=libc.environ)
        try:
            await platform.start()
            yield platform
            await platform.stop()
        finally:
            platform.destroy()


async def test_a_change_that_the_store_does_not_take_is_said_with_the_apis_sentence(
    platform: Platform, libc: FaultyLibc
) -> None:
    async with chromium() as browser, Visitor.coming(browser, platform.url) as visitor:
        await visitor.sign_in(platform.token)
        await visitor.open("/")
        overview = visitor.page
        short = overview.locator("section", has=overview.get_by_role("heading", name=SHORT))
        said = short.filter(has_text=SAYS)  # and not what the last events tell of it afterwards
        tokens = await overview.context.new_page()
        await tokens.goto(f"{platform.url}/api_tokens")
        make = tokens.get_by_role("button", name="Make a token")
        await tokens.get_by_label("Name").fill("laptop")
        with libc.fault(read_only=True):
            await make.click()
            await expect(tokens.locator("#notices")).to_contain_text(SAYS)
            await expect(said).to_have_count(1, timeout=PATIENCE_MS)
        await expect(said).to_have_count(0, timeout=PATIENCE_MS)
        await make.click()
        await expect(tokens.locator("[data-token]", has_text="laptop")).to_have_count(1)
