"""What operators set on the page of the platform."""

from __future__ import annotations

import pytest

from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.control_plane.cloud import ApiSession
from tests.support.patience import until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
PATH = "/api/v1/hotplate/standby"


async def test_standbys_are_set_and_two_who_set_them_see_both_values(
    town: Town, visitor: Visitor
) -> None:
    await visitor.open("/platform")
    count = visitor.page.get_by_label("Count, where fixed")
    save = visitor.page.get_by_role("button", name="Save", exact=True)
    notices = visitor.page.locator("#notices")
    async with ApiSession(town.platform.url, town.platform.token) as api:
        await count.fill("3")
        await save.click()
        await notices.get_by_text("The standby settings are kept.").wait_for()
        assert (await api.call("GET", PATH))["settings"]["count"] == 3
        await count.fill("4")
        await api.call("PUT", PATH, {"settings": {"count": 5}})
        await save.click()
        await notices.get_by_text("nothing was changed").wait_for()
        await visitor.page.get_by_text("now 5").wait_for()
        assert await count.input_value() == "4"
        await save.click()
        await visitor.page.get_by_text("now 5").wait_for(state="detached")
        assert (await api.call("GET", PATH))["settings"]["count"] == 4
        await visitor.page.get_by_label("Share of memory").fill("7")
        await save.click()
        await notices.get_by_text("memory_share 7 is not within 0 and 1").wait_for()
        await visitor.page.get_by_role("button", name="Take back what was set").click()

        async def is_taken_back() -> bool:
            return bool((await api.call("GET", PATH))["set"] == [])

        await until(is_taken_back)
