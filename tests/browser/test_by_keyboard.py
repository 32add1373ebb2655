"""The main tasks by keyboard alone: find, why, log, undo, scale, token."""

from __future__ import annotations

import pytest

from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.patience import until

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]


async def reach(visitor: Visitor, role: str, name: str) -> None:
    """Presses Tab until what is called so has the focus."""
    wanted = visitor.page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
    await wanted.wait_for()
    for _ in range(120):
        await visitor.page.keyboard.press("Tab")
        if await wanted.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"Tab does not reach {role} {name!r}")


async def test_a_deployment_is_found_and_its_reason_and_log_are_read(visitor: Visitor) -> None:
    keys = visitor.page.keyboard
    await visitor.open("/")
    await keys.press("/")
    await visitor.page.wait_for_url("**/deployments*")
    await visitor.usable()
    await visitor.page.wait_for_selector("input[type=search]:focus")
    await keys.type("cha")
    await reach(visitor, "link", "chat")
    await keys.press("Enter")
    await visitor.page.wait_for_url("**/deployments/chat")
    await visitor.usable()
    await keys.press("5")
    await visitor.page.wait_for_url("**/deployments/chat/why")
    await visitor.usable()
    assert "wanted of Words" in await visitor.text()
    await keys.press("3")
    await visitor.page.wait_for_url("**/deployments/chat/logs")
    await visitor.usable()


async def test_the_cursor_goes_through_the_charts_and_tells_the_decision_there(
    visitor: Visitor,
) -> None:
    keys = visitor.page.keyboard
    await visitor.open("/deployments/chat")
    await visitor.usable()
    await visitor.page.locator("figure[data-chart=requests]").focus()
    place = visitor.page.get_by_role("heading", name="Why, at")
    told = []
    for _ in range(3):
        await keys.press("ArrowLeft")
        await place.wait_for()
        told.append(await place.inner_text())
    assert len(set(told)) == 3
    await keys.press("ArrowRight")
    await visitor.page.get_by_role("heading", name=told[1]).wait_for()
    await keys.press("Escape")
    await place.wait_for(state="hidden")


async def test_the_keys_are_listed_and_the_list_closes(visitor: Visitor) -> None:
    await visitor.open("/deployments")
    await visitor.page.keyboard.press("?")
    dialog = visitor.page.get_by_role("dialog", name="Keys")
    await dialog.wait_for()
    assert await visitor.violations() == []
    await visitor.page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")


async def test_a_token_is_made_and_ended(visitor: Visitor) -> None:
    keys = visitor.page.keyboard
    await visitor.open("/api_tokens")
    await reach(visitor, "textbox", "Name")
    await keys.type("by-keyboard")
    await keys.press("Enter")
    await visitor.page.get_by_text("It is shown now and never again.").wait_for()
    await reach(visitor, "button", "End by-keyboard")
    await keys.press("Enter")
    await reach(visitor, "button", "End it")
    await keys.press("Enter")
    await visitor.page.get_by_text("Token by-keyboard is good for nothing any more.").wait_for()


async def test_it_is_scaled_and_put_back(town: Town, visitor: Visitor) -> None:
    keys = visitor.page.keyboard
    await visitor.open("/deployments/chat/settings")
    await reach(visitor, "spinbutton", "at most")
    await keys.press("ArrowUp")
    await reach(visitor, "button", "Save")
    await keys.press("Enter")
    await visitor.page.get_by_text("The settings are saved").wait_for()
    found = await town.platform.ask("chat")
    assert found["config"]["services"]["Words"]["scaling"]["max_replicas"] == 4

    async def settled() -> bool:
        return bool((await town.platform.ask("chat", "/rollout"))["phase"] == "done")

    await until(settled)
    await visitor.open("/deployments/chat/revisions")
    await reach(visitor, "button", "Undo")
    await keys.press("Enter")
    await visitor.page.keyboard.press("Tab")
    await reach(visitor, "button", "undo")
    await keys.press("Enter")
    await visitor.page.get_by_text("undo: done").wait_for()
    found = await town.platform.ask("chat")
    assert found["config"]["services"]["Words"]["scaling"]["max_replicas"] == 3
