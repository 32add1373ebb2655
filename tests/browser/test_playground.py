"""A call from a page: by a form of the bento's schema, and by the samples beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.browser.town import Town
from tests.browser.visitor import Visitor, needs_chromium
from tests.support.end_to_end.platform_process import exit_of

pytestmark = [needs_chromium, pytest.mark.one_machine("it starts a platform of its own")]
ANSWER = "[aria-label='The answer']"


async def opened(visitor: Visitor, route: str) -> None:
    await visitor.open("/deployments/chat/playground")
    method = visitor.page.get_by_role("group", name="Method")
    await method.get_by_role("button", name=route).click()
    await visitor.page.wait_for_selector(f"pre.curl:has-text('{route}')")


async def answered(visitor: Visitor, holds: str) -> str:
    """The whole answer, once it is there and holds this."""
    await visitor.page.locator(ANSWER, has_text=holds).wait_for()
    await visitor.page.get_by_text("whole").wait_for()
    return await visitor.text(ANSWER)


async def test_fields_are_those_of_the_schema(visitor: Visitor) -> None:
    await opened(visitor, "/say")
    await visitor.page.get_by_label("text").fill('a "quoted" word')
    await visitor.page.get_by_label("seconds").fill("0.1")
    await visitor.page.get_by_role("button", name="Call", exact=True).click()
    assert await answered(visitor, "QUOTED") == 'A "QUOTED" WORD'
    assert await visitor.page.locator("main b", has_text="200").count() == 1


async def test_a_stream_is_shown_as_it_comes_and_may_be_given_up(visitor: Visitor) -> None:
    await opened(visitor, "/count")
    await visitor.page.get_by_label("to").fill("600")
    await visitor.page.get_by_role("button", name="Call", exact=True).click()
    await visitor.page.locator(ANSWER, has_text="3").wait_for()
    assert "599" not in await visitor.text(ANSWER)
    await visitor.page.get_by_role("button", name="Give up").click()
    await visitor.page.get_by_text("It was given up.").wait_for()


async def test_files_are_sent(visitor: Visitor, tmp_path: Path) -> None:
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(bytes(70_000))
    await opened(visitor, "/size")
    files = [tmp_path / "a.bin", tmp_path / "b.bin"]
    await visitor.page.locator("input[type=file]").set_input_files(files)
    await visitor.page.get_by_role("button", name="Call", exact=True).click()
    assert await answered(visitor, "bytes") == "140000 bytes"


async def test_a_task_is_submitted_and_its_result_fetched(visitor: Visitor) -> None:
    await opened(visitor, "/render")
    await visitor.page.get_by_role("spinbutton", name="pages").fill("7")
    await visitor.page.get_by_role("button", name="Submit the task").click()
    said = json.loads(await answered(visitor, "task_id"))
    await visitor.page.get_by_label("Its id").fill(said["task_id"])
    answer = visitor.page.locator(ANSWER)
    while "completed" not in await answer.inner_text():
        async with visitor.page.expect_response("**/call"):
            await visitor.page.get_by_role("button", name="status").click()
        await visitor.page.get_by_text("whole").wait_for()
    await visitor.page.get_by_role("button", name="get", exact=True).click()
    assert await answered(visitor, "7") == "7"


@pytest.mark.parametrize("route", ["/say", "/count", "/size", "/render"])
async def test_the_samples_are_programs_that_do_the_same(
    town: Town, visitor: Visitor, tmp_path: Path, route: str
) -> None:
    await opened(visitor, route)
    if route == "/size":
        (tmp_path / "five.bin").write_bytes(bytes(5))
        file = tmp_path / "five.bin"
        await visitor.page.locator("input[type=file]").set_input_files(file)
    shown = {"/say": "HELLO", "/count": "4", "/size": "5 bytes", "/render": "1"}[route]
    command = ["bash", "-c", await visitor.text("pre.curl")]
    status, output = await exit_of(command, dict(os.environ), tmp_path)
    assert status == 0
    assert ("task_id" if route == "/render" else shown) in output
    program = f"import os\nos.chdir({str(tmp_path)!r})\n{await visitor.text('pre.python')}"
    assert shown in await town.laptop.python(program)
