"""The page of logs in a real browser: which lines are of a time, and logs that are huge or fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Route

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.store.parts import Store
from tests.browser.visitor import Visitor, chromium, needs_chromium
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.streamed_api import Served
from tests.support.patience import until

pytestmark = needs_chromium
DRAWN, KEPT = 1000, 5000
"""Lines that are drawn, and that the page keeps."""
HUGE_BYTES = 64 << 20
FAST_LINES = 20_000
LINE = "x" * 99


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
async def visitor(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path, log: Path
) -> AsyncIterator[Visitor]:
    """Who has signed in to an API with a stream; `echo` has one replica, which prints to `log`."""
    served = Served(store, blobs, controller, tmp_path)
    server = await served.start()
    controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready"}]
    controller.log_files = {"r-1": log}
    async with (
        Cloud(server, store, operator=True) as cloud,
        chromium() as browser,
        Visitor.coming(browser, str(server.make_url("/")).rstrip("/")) as visitor,
    ):
        await cloud.push_bento()
        await cloud.deploy()
        await controller.settled()
        await visitor.sign_in(cloud.token)
        yield visitor
    await served.stop()


def put(log: Path, text: str) -> None:
    log.write_text(text)


async def shown(visitor: Visitor) -> list[str]:
    found: list[str] = await visitor.page.locator(".log [data-replica] bdi").all_inner_texts()
    return [text.strip() for text in found]


async def test_since_goes_by_when_a_line_was_written_and_says_where_nobody_knows(
    visitor: Visitor, log: Path
) -> None:
    ago = [(datetime.now(UTC) - timedelta(seconds=s)).isoformat() for s in (3000, 30)]
    old, late = f"{ago[0]} old\n  its trace\n", f"{ago[1]} late\n  its trace of late\n"
    put(log, f"before any time\n{old}{late}")
    await visitor.open("/deployments/echo/logs")
    await visitor.page.get_by_text("before any time").wait_for()
    with log.open("a") as file:
        file.write("came meanwhile\n2001-01-01T00:00:00Z is what it says\n")
    await visitor.page.get_by_text("2001-01-01").wait_for()
    assert len(await shown(visitor)) == 7
    await visitor.page.get_by_label("Since").select_option("60")
    await visitor.page.get_by_text("before any time").wait_for(state="detached")
    assert await shown(visitor) == [
        f"{ago[1]} late",
        "its trace of late",
        "came meanwhile",
        "2001-01-01T00:00:00Z is what it says",
    ]
    assert "1 that were there before say no time and are left out" in await visitor.text()
    assert visitor.complaints == []


async def test_what_was_asked_for_while_cut_off_is_not_shown_beside_the_stream(
    visitor: Visitor, log: Path
) -> None:
    is_asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        is_asked.set()
        await may_go_on.wait()
        await route.continue_()

    async def connection(state: str) -> None:
        await visitor.page.evaluate(
            "async (state) => { (await import('hotplate/live')).connection.value = { state }; }",
            state,
        )

    put(log, "by the stream\n")
    await visitor.open("/deployments/echo/logs")
    await visitor.page.get_by_text("by the stream").wait_for()
    await visitor.page.route("**/logs?*", late)
    await connection("cut")
    await until(is_asked.is_set)
    await connection("live")
    async with visitor.page.expect_response("**/logs?*"):
        may_go_on.set()
    with log.open("a") as file:
        file.write("later\n")
    await visitor.page.get_by_text("later").wait_for()
    assert await shown(visitor) == ["by the stream", "later"]


async def test_a_huge_log_that_grows_fast_leaves_the_page_usable(
    visitor: Visitor, log: Path
) -> None:
    block = f"{LINE}\n" * 10_000
    put(log, block * (HUGE_BYTES // len(block)) + "the last of before\n")
    await visitor.open("/deployments/echo/logs")
    await visitor.page.get_by_text("the last of before").wait_for()

    def print_fast() -> None:
        with log.open("a", buffering=1) as file:
            file.writelines(f"{number} {LINE}\n" for number in range(FAST_LINES))
            file.write("the very last\n")

    printing = asyncio.create_task(asyncio.to_thread(print_fast))
    # While it comes, the page does what it is asked to.
    await visitor.page.get_by_label("wrap lines").check()
    await visitor.page.wait_for_selector(".log.wrapped")
    await printing
    await visitor.page.get_by_text("the very last").wait_for()
    assert len(await shown(visitor)) <= DRAWN
    kept = await visitor.page.evaluate(
        """async () => {
          const { useLines } = await import("hotplate/loglines");
          return [...useLines.states.values()].map(({ value }) => value.lines.length);
        }"""
    )
    assert 0 < max(kept) <= KEPT
    assert visitor.complaints == []


async def test_what_is_read_above_stays_where_it_is_while_more_comes(
    visitor: Visitor, log: Path
) -> None:
    put(log, "".join(f"line {number}\n" for number in range(150)))
    await visitor.open("/deployments/echo/logs")
    await visitor.page.get_by_text("line 149").wait_for()
    await visitor.page.evaluate("document.querySelector('.log').scrollTop = 0")
    follow = visitor.page.get_by_role("button", name="Follow what comes")
    await follow.wait_for()
    before = await shown(visitor)
    with log.open("a") as file:
        file.writelines(f"later {number}\n" for number in range(6000))
    await visitor.page.wait_for_function(
        """async () => {
          const { useLines } = await import("hotplate/loglines");
          return [...useLines.states.values()].some(({ value }) => value.lines.length === 5000);
        }"""
    )
    assert await shown(visitor) == before
    await follow.click()
    await visitor.page.get_by_text("later 5999").wait_for()
