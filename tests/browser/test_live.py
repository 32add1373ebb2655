"""What changes comes by itself, over one connection, and comes again after a cut."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.patience import until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
TABS = 8


@pytest.fixture
async def watcher(visitor: Visitor) -> AsyncIterator[Visitor]:
    """Somebody to whom the platform says what changes."""
    if any(pattern.search("/hotplate/stream") for pattern in visitor.unserved):
        pytest.skip("this API has no stream")
    yield visitor


async def test_a_page_that_is_cut_off_says_so_and_is_right_again(
    town: Town, watcher: Visitor
) -> None:
    await watcher.open("/deployments/chat")
    os.kill(town.platform.pid("control-plane"), signal.SIGKILL)
    notice = watcher.page.get_by_text("Cut off from the control plane")
    await notice.wait_for()
    await notice.wait_for(state="detached")
    await until(town.platform.healthy)
    await watcher.page.wait_for_selector("main [data-field=status][data-value=running]")
    assert await watcher.page.get_by_text("Nothing comes by itself").count() == 0


async def test_all_tabs_of_a_browser_share_one_connection(watcher: Visitor) -> None:
    session = await watcher.page.context.new_cdp_session(watcher.page)
    pages = [await watcher.page.context.new_page() for _ in range(TABS)]
    for page in pages:
        await page.goto(f"{watcher.url}/deployments/chat")
        await page.wait_for_selector("main[data-page]:not([aria-busy])")
    targets = (await session.send("Target.getTargets"))["targetInfos"]
    assert [one["type"] for one in targets].count("shared_worker") == 1
    for page in pages:
        assert await page.evaluate(
            "import('hotplate/live').then(live => live.connection.value.state)"
        ) in ("live", "connecting")


async def test_a_status_that_changes_is_on_the_screen_at_once(
    town: Town, watcher: Visitor, browser: Browser
) -> None:
    await watcher.open("/deployments")
    row = "tr[data-deployment=captions] [data-field=status]"
    await watcher.page.wait_for_selector(row)
    await town.laptop.bentoml("deployment", "terminate", "captions")
    await watcher.page.wait_for_selector(f"{row}[data-value=terminated]")
    assert watcher.complaints == []
