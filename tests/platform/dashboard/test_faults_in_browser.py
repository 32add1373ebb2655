"""Pages in a real browser that has no scripts, another clock or zone, sleeps, or is signed out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.browser.visitor import Visitor, chromium, needs_chromium
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController

pytestmark = needs_chromium
STREAM = "**/api/v1/hotplate/stream?*"
HOUR_S = 3600
CHANGES_AT = 1_792_890_000
"""2026-10-25 01:00 UTC: in Berlin 03:00 becomes 02:00."""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
def url(cloud: Cloud) -> str:
    return str(cloud.server.make_url("/")).rstrip("/")


@pytest.fixture
async def echo(cloud: Cloud, controller: FakeController) -> None:
    """A deployment."""
    await cloud.push_bento()
    await cloud.deploy()
    await controller.settled()


@pytest.mark.usefixtures("echo")
async def test_who_signs_in_again_is_back_on_the_same_page(
    browser: Browser, cloud: Cloud, url: str
) -> None:
    there = "/deployments/echo?range=6h"
    async with Visitor.coming(browser, url) as visitor:
        await visitor.sign_in(cloud.token)
        await visitor.open(there)
        await visitor.page.context.clear_cookies()
        await visitor.page.get_by_role("link", name="Sign in again").click()
        await visitor.page.fill("#token", cloud.token)
        await visitor.page.click("form[action='/login'] button")
        await visitor.usable()
        assert visitor.page.url == url + there
        await expect(visitor.page.get_by_text("sign-in has expired")).to_have_count(0)


async def test_a_stream_that_slept_is_made_anew_as_soon_as_the_machine_wakes(
    browser: Browser, cloud: Cloud, url: str
) -> None:
    """The clock goes on in a sleep, and timers do not; nobody says that the connection is gone."""
    asked = asyncio.Queue[Route]()
    async with Visitor.coming(browser, url) as visitor:
        await visitor.page.clock.install()
        await visitor.sign_in(cloud.token)
        await visitor.open("/bentos")
        await visitor.page.route(STREAM, asked.put)
        await visitor.page.evaluate(
            """async () => {
              const { serve } = await import("hotplate/stream");
              const { port1, port2 } = new MessageChannel();
              serve(port1);
              port2.onmessage = ({ data }) => data.data && (document.title = data.data.of);
              port2.postMessage({ topics: ["platform"] });
            }"""
        )
        await asked.get()  # it is never answered
        now_ms = await visitor.page.evaluate("Date.now()")
        await visitor.page.clock.set_system_time(now_ms + 60_000)
        again = await asyncio.wait_for(asked.get(), 8)
        news = f"id: 1\nevent: platform\ndata: {json.dumps({'of': 'awake'})}\n\n"
        await again.fulfill(content_type="text/event-stream", body=news)
        await expect(visitor.page).to_have_title("awake")


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("Asia/Kolkata", "2026-01-01 05:30:00 GMT+5:30"), ("UTC", "2026-01-01 00:00:00 UTC")],
)
async def test_moments_are_those_of_the_zone_of_who_looks(
    browser: Browser, cloud: Cloud, url: str, zone: str, shown: str
) -> None:
    async with Visitor.coming(browser, url, zone=zone) as visitor:
        await visitor.sign_in(cloud.token)
        await visitor.open("/bentos")
        script = "import('hotplate/figures').then(({ moment }) => moment(Date.UTC(2026, 0, 1)))"
        assert await visitor.page.evaluate(script) == shown


@pytest.mark.usefixtures("echo")
async def test_an_hour_that_comes_twice_is_told_apart(
    browser: Browser, cloud: Cloud, url: str
) -> None:
    begin, end = CHANGES_AT - HOUR_S, CHANGES_AT + HOUR_S
    async with Visitor.coming(browser, url, zone="Europe/Berlin") as visitor:
        await visitor.page.route("**/series?*", lambda route: route.fulfill(json=hours(begin)))
        await visitor.sign_in(cloud.token)
        await visitor.open(f"/deployments/echo?from={begin}&to={end}")
        picked = await visitor.text(".picker")
        assert "10-25 02:00:00 CEST" in picked
        assert "10-25 03:00:00 CET" in picked
        chart = visitor.page.locator("figure[data-chart=requests]")
        await chart.locator("summary").click()
        times = chart.locator("tbody th")
        await times.nth(3).wait_for()  # the series come after the page
        rows = await times.all_inner_texts()
        assert len(set(rows)) == len(rows) == 4
        assert rows[1] == "2026-10-25 02:30:00 CEST"
        assert rows[3] == "2026-10-25 02:30:00 CET"
        marks = [begin, begin + HOUR_S // 2, CHANGES_AT, CHANGES_AT + HOUR_S // 2]
        assert await axis(visitor, marks) == [
            "02:00 CEST",
            "02:30 CEST",
            "02:00 CET",
            "02:30 CET",
        ]
        assert await axis(visitor, [mark + 86_400 for mark in marks]) == [
            "01:00",
            "01:30",
            "02:00",
            "02:30",
        ]


async def axis(visitor: Visitor, marks: list[int]) -> list[str]:
    found: list[str] = await visitor.page.evaluate(
        "(marks) => import('hotplate/charts').then(({ stamps }) => stamps(marks, 1800))", marks
    )
    return found


def hours(begin: int) -> dict[str, Any]:
    """Two hours of series, in four steps."""
    values = [1.0, 2.0, 3.0, 4.0]
    shares = {"p50": values, "p95": values, "p99": values}
    uses = dict.fromkeys(("busy", "idle", "starting"), values)
    counts = ("requests", "errors", "refused", "in_flight", "queued", "cold_starts", "cpu_s")
    return {
        "step_s": HOUR_S // 2,
        "at": [begin + number * HOUR_S // 2 for number in range(4)],
        **dict.fromkeys((*counts, "memory_bytes", "gpu_share", "gpu_memory_bytes"), values),
        "replicas": dict.fromkeys(("wanted", "ready", "starting", "draining"), values),
        **dict.fromkeys(("wait_s", "first_byte_s", "answer_s"), shares),
        **dict.fromkeys(("gpu_s", "replica_s"), uses),
    }


async def test_signing_in_and_approving_a_login_need_no_scripts(cloud: Cloud, url: str) -> None:
    code = (await cloud.call("GET", "/api/v1/auth/code"))["code"]
    async with (
        chromium("--blink-settings=scriptEnabled=false") as browser,
        Visitor.coming(browser, url) as visitor,
    ):
        page = visitor.page
        await page.goto(f"{url}/api_tokens?code={code}")
        await page.fill("#token", cloud.token)
        await page.click("form[action='/login'] button")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("The login is approved")).to_be_visible()
        assert (await cloud.call("GET", f"/api/v1/auth/token?code={code}"))["token"]
        for path in ("/", "/deployments", "/costs", "/api_tokens"):
            await page.goto(url + path)
            sentence = page.locator("main noscript p")  # which is not looked into for text
            await expect(sentence).to_be_visible()
            assert "This page needs scripts" in await sentence.inner_text()


@pytest.mark.usefixtures("echo")
async def test_a_page_is_busy_until_all_that_it_shows_is_there(
    browser: Browser, cloud: Cloud, url: str
) -> None:
    """What it asks for only when the first answer has come counts too."""
    held = asyncio.Queue[Route]()
    async with Visitor.coming(browser, url) as visitor:
        await visitor.sign_in(cloud.token)
        await visitor.page.route("**/echo/events?*", held.put)
        await visitor.page.goto(f"{url}/deployments/echo")
        late = await held.get()
        await visitor.page.locator("figure[data-chart=requests]").wait_for()
        main = visitor.page.locator("main")
        await expect(main).to_have_attribute("aria-busy", "true")
        await expect(main).not_to_contain_text("Nothing happened in this time")
        await late.continue_()
        await visitor.usable()
        await expect(main).to_contain_text("deployment 'echo' was created")
