"""Parts of the platform that are gone, as who looks at the dashboard sees it."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.async_api import expect

from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.patience import PATIENCE_S, until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
PATIENCE_MS = PATIENCE_S * 1000


async def test_a_gateway_that_is_gone_is_said_and_its_return_too(
    town: Town, visitor: Visitor
) -> None:
    await visitor.open("/")
    main = visitor.page.locator("main")
    await expect(main).not_to_contain_text("gateway")
    starts_it_again = town.platform.pid("up")
    os.kill(starts_it_again, signal.SIGSTOP)
    try:
        os.kill(town.platform.pid("gateway"), signal.SIGKILL)
        await expect(main.locator(".trouble")).to_contain_text("gateway", timeout=PATIENCE_MS)
        (said,) = (await town.platform.page("platform"))["short"]
        await expect(main).to_contain_text(said)
    finally:
        os.kill(starts_it_again, signal.SIGCONT)
    await expect(main.locator(".trouble")).to_have_count(0, timeout=PATIENCE_MS)
    await until(town.platform.healthy)
    assert visitor.complaints == []
