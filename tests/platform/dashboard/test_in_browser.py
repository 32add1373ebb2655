"""Pages in a real browser, of hostile names, and of streams that are cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from hotplate.cache.store.blobs import BlobStore
from hotplate.deploy.phases import unix_now
from hotplate.platform.store.parts import Store
from tests.browser.visitor import Visitor, chromium, needs_chromium
from tests.support.control_plane.cloud import MANIFEST, Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.streamed_api import Served
from tests.support.patience import until

pytestmark = needs_chromium
EVIL = (
    "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>{{7*7}}"
)
TURNED = "\u202egnp.exe"
STREAM = "**/api/v1/hotplate/stream?*"
REPLICA = {
    "id": f"echo-1-{EVIL}",
    "uid": "u",
    "node": EVIL,
    "revision": 1,
    "service": EVIL,
    "state": "ready",
    "reason": EVIL,
    "slots": {"number": 2, "source": EVIL},
    "abandoned_handlers": 0,
    "out": "",
    "out_since": None,
    "restarts": 0,
    "cpus": 1.0,
    "gpus": 0.0,
    "memory_bytes": 1 << 20,
    "cold_start_s": 2.0,
    "created_at": "2026-01-01T00:00:00+00:00",
    "ready_at": "2026-01-01T00:00:02+00:00",
    "wanted_at": "2026-01-01T00:00:00+00:00",
    "phases": [{"name": EVIL, "start": 1.0, "end": 2.0, "share_s": 1.0, "lasted_s": 1.0}],
    "log_tail": [EVIL],
}
SCHEMA = {
    "routes": [
        {
            "name": EVIL,
            "route": "/predict",
            "doc": EVIL,
            "input": {
                "type": "object",
                "properties": {EVIL: {"type": "string", "default": EVIL, "description": EVIL}},
            },
            "output": {"type": "string"},
        }
    ]
}


@pytest.fixture
async def visitor(cloud: Cloud, controller: FakeController) -> AsyncIterator[Visitor]:
    """Who has signed in, and looks at a deployment of which everything is hostile."""
    await cloud.push_bento(manifest={**MANIFEST, "schema": SCHEMA})
    await cloud.deploy(labels=[{"key": EVIL, "value": EVIL}])
    await controller.settled()
    controller.replicas = [REPLICA]
    controller.lines = [EVIL, f"a\x1b[31mred\x1b[0m\x1b[2J{TURNED}", "x" * 10_000]
    async with (
        chromium() as browser,
        Visitor.coming(browser, str(cloud.server.make_url("/")).rstrip("/")) as visitor,
    ):
        await visitor.sign_in(cloud.token)
        yield visitor


PATHS = ("", "/replicas", "/logs", "/revisions", "/why", "/playground", "/settings")


@pytest.mark.parametrize("path", PATHS)
async def test_what_anybody_wrote_is_shown_and_runs_nowhere(visitor: Visitor, path: str) -> None:
    await visitor.open(f"/deployments/echo{path}")
    assert "Hotplate" in await visitor.page.title()
    assert await visitor.page.locator("main img, main script, main iframe").count() == 0
    assert await visitor.sideways() == []
    assert visitor.complaints == []


async def test_a_hostile_replica_is_shown_as_it_is(visitor: Visitor) -> None:
    await visitor.open("/deployments/echo/replicas")
    assert EVIL in await visitor.text()


async def test_terminal_codes_and_marks_of_direction_are_symbols(visitor: Visitor) -> None:
    await visitor.open("/deployments/echo/logs")
    line = visitor.page.locator(".log div", has_text="red")
    await line.wait_for()
    text = await line.inner_text()
    assert "a" in text and "U+202E" in text
    assert "\x1b" not in text and "\u202e" not in text


async def test_a_deployment_that_is_deleted_while_it_is_looked_at_is_said_to_be_gone(
    visitor: Visitor, cloud: Cloud, controller: FakeController
) -> None:
    await visitor.open("/deployments/echo")
    await cloud.call("DELETE", "/api/v2/deployments/echo")
    await visitor.page.get_by_text("This deployment is gone").wait_for()


async def test_a_sign_in_that_ends_is_said_and_leads_back(visitor: Visitor, store: Store) -> None:
    await visitor.open("/deployments/echo/why")
    await visitor.page.context.clear_cookies()
    link = visitor.page.get_by_role("link", name="Sign in again")
    await link.wait_for()
    assert await link.get_attribute("href") == "/login?next=%2Fdeployments%2Fecho%2Fwhy"


async def test_who_may_not_change_has_no_buttons_for_it(
    visitor: Visitor, cloud: Cloud, store: Store
) -> None:
    await visitor.open("/organization")
    assert await visitor.page.get_by_role("button", name="Describe it").count() == 0
    assert await visitor.page.get_by_role("heading", name="Members").count() == 1


async def test_two_people_who_change_one_thing_see_both_values(
    visitor: Visitor, cloud: Cloud
) -> None:
    await visitor.open("/deployments/echo/settings")
    theirs = {"bento": "echo:v1", "labels": [{"key": "team", "value": "theirs"}]}
    await cloud.call("PUT", "/api/v2/deployments/echo", theirs)
    await visitor.page.get_by_label("Labels").fill("team=mine")
    await visitor.page.get_by_role("button", name="Save", exact=True).click()
    await visitor.page.get_by_text("Somebody else has changed it meanwhile").wait_for()
    shown = await visitor.text("section[role=alert]")
    assert "theirs" in shown and "mine" in shown
    await visitor.page.get_by_role("button", name="Keep mine").click()
    await visitor.page.get_by_role("button", name="Save", exact=True).click()
    await visitor.page.get_by_text("The settings are saved").wait_for()
    labels = (await cloud.call("GET", "/api/v1/hotplate/deployments/echo"))["labels"]
    assert labels == [{"key": "team", "value": "mine"}]


async def heard(visitor: Visitor, answers: list[str], topics: list[str]) -> list[Any]:
    """What a tab is told while the stream answers so, one after the other; then it fails."""
    asked: list[dict[str, str]] = []

    async def answer(route: Route) -> None:
        asked.append(await route.request.all_headers())
        if len(asked) > len(answers):
            await route.abort()
            return
        await route.fulfill(content_type="text/event-stream", body=answers[len(asked) - 1])

    await visitor.page.route(STREAM, answer)
    told: list[Any] = await visitor.page.evaluate(
        """async ([topics, count]) => {
          const { serve } = await import("hotplate/stream");
          const { port1, port2 } = new MessageChannel();
          serve(port1);
          const told = [];
          await new Promise((done) => {
            let cuts = 0;
            port2.onmessage = ({ data }) => {
              told.push(data);
              if (data.state === "ended" || (data.state === "cut" && (cuts += 1) > count)) done();
            };
            port2.postMessage({ topics });
          });
          return told;
        }""",
        [topics, len(answers)],
    )
    told.append([one.get("last-event-id") for one in asked])
    return told


def event(number: int, topic: str, data: object) -> str:
    return f"id: {number}\nevent: {topic}\ndata: {json.dumps(data)}\n\n"


async def test_a_stream_that_is_cut_goes_on_after_the_last_event(visitor: Visitor) -> None:
    await visitor.open("/bentos")
    first = event(1, "platform", {"short": []}) + "id: 2\nevent: platform\ndata: {"
    told = await heard(
        visitor, [first, ": quiet\n\n" + event(3, "platform", {"a": 1})], ["platform"]
    )
    asked = told.pop()
    assert asked[:3] == [None, "1", "3"]
    assert [one["data"] for one in told if "data" in one] == [{"short": []}, {"a": 1}]
    assert [one["state"] for one in told if "state" in one][-1] == "cut"


async def test_a_reset_and_the_end_are_told(visitor: Visitor) -> None:
    await visitor.open("/bentos")
    reset = event(1, "reset", {"topics": ["logs:echo"]})
    end = event(2, "end", {"code": "unauthorized", "message": "sign in again"})
    told = await heard(visitor, [reset + end], ["logs:echo"])
    assert {"topic": "logs:echo", "reset": True} in told
    assert told[-2] == {"state": "ended", "code": "unauthorized", "message": "sign in again"}


async def test_another_user_of_a_browser_hears_nothing_of_what_the_one_before_was_told(
    visitor: Visitor,
) -> None:
    """Their tabs share a worker."""
    await visitor.open("/bentos")
    answers = [event(1, "platform", {"of": "ann"}), event(1, "platform", {"of": "bob"})]
    asked: list[str] = []

    async def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > len(answers):
            await route.abort()
            return
        await route.fulfill(content_type="text/event-stream", body=answers[len(asked) - 1])

    await visitor.page.route(STREAM, answer)
    told = await visitor.page.evaluate(
        """async () => {
          const { serve } = await import("hotplate/stream");
          const told = {};
          for (const user of ["ann", "bob"]) {
            const { port1, port2 } = new MessageChannel();
            serve(port1);
            await new Promise((done) => {
              port2.onmessage = ({ data }) => {
                if (data.data) (told[user] ??= []).push(data.data.of);
                if (data.state === "cut") done();
              };
              port2.postMessage({ topics: ["platform"], user, organization: "acme" });
            });
          }
          return told;
        }"""
    )
    assert told == {"ann": ["ann"], "bob": ["bob"]}


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_events_are_read_wherever_they_are_cut(visitor: Visitor, size: int) -> None:
    await visitor.open("/bentos")
    text = "id: 1\r\nevent: a\r\ndata: {\r\ndata: }\r\n\r\n: c\n\nid:2\ndata: x: y\n\ndata: lost"
    found = await visitor.page.evaluate(
        """async ([text, size]) => {
          const { EventParser } = await import("hotplate/stream");
          const found = [];
          const parser = new EventParser((event) => found.push(event));
          for (let at = 0; at < text.length; at += size) parser.feed(text.slice(at, at + size));
          return found;
        }""",
        [text, size],
    )
    assert found == [
        {"id": "1", "event": "a", "data": "{\n}"},
        {"id": "2", "event": "message", "data": "x: y"},
    ]


async def test_what_comes_by_itself_is_on_the_page_at_once(visitor: Visitor, cloud: Cloud) -> None:
    summary = (await cloud.call("GET", "/api/v1/hotplate/deployments"))[0]
    many = [summary | {"name": f"echo-{number}", "status": "running"} for number in range(1000)]
    await visitor.open("/deployments")
    drawn = await visitor.page.evaluate(
        """async (many) => {
          const { resource } = await import("hotplate/resources");
          const list = resource("/api/v1/hotplate/deployments");
          list.data.value = many;
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          const began = performance.now();
          list.data.value = many.map((one, i) => (i % 5 ? one : { ...one, status: "failed" }));
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          return performance.now() - began;
        }""",
        many,
    )
    rows = visitor.page.locator("tr[data-deployment]")
    assert 10 < await rows.count() < 120
    assert await rows.first.locator("[data-field=status]").get_attribute("data-value") == "failed"
    assert drawn < 500  # 50 ms where nothing else runs


YESTERDAY = "const now = Date.now; Date.now = () => now() - 86_400_000;"


async def test_a_clock_that_is_a_day_wrong_shows_right_ages(visitor: Visitor, cloud: Cloud) -> None:
    await visitor.page.add_init_script(YESTERDAY)
    await visitor.open("/bentos")
    assert "d" not in (await visitor.text("tr[data-bento] time")).split()


async def test_a_token_is_good_for_as_long_as_was_chosen_by_a_wrong_clock_too(
    visitor: Visitor, cloud: Cloud
) -> None:
    await visitor.page.add_init_script(YESTERDAY)
    await visitor.open("/api_tokens")
    await visitor.page.get_by_label("Name").fill("for-a-day")
    await visitor.page.locator("select", has_text="30 days").select_option("1")
    await visitor.page.get_by_role("button", name="Make a token").click()
    await visitor.page.get_by_text("It is shown now and never again.").wait_for()
    tokens = (await cloud.call("GET", "/api/v1/api_tokens?count=100"))["items"]
    (ends,) = [one["expired_at"] for one in tokens if one["name"] == "for-a-day"]
    left_s = datetime.fromisoformat(ends).timestamp() - unix_now()
    assert 86_000 < left_s < 86_500


async def test_what_gpus_do_is_shown_standbys_too(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> None:
    served = Served(store, blobs, controller, tmp_path)
    async with (
        Cloud(await served.start(), store, operator=True) as root,
        chromium() as browser,
        Visitor.coming(browser, root.url.rstrip("/")) as visitor,
    ):
        await visitor.sign_in(root.token)
        await visitor.open("/")
        gpus = {"in_all": 8, "busy": 3, "idle": 1, "starting": 0.5, "standby": 2, "free": 1.5}
        for name, value in gpus.items():
            shown = f"[data-field='gpus.{name}'][data-value='{value}']"
            await visitor.page.wait_for_selector(shown)
        assert "standby 2" in await visitor.text()
    await served.stop()


async def test_a_line_of_the_last_hour_is_asked_for_again(visitor: Visitor) -> None:
    asked: list[str] = []
    visitor.page.on("request", lambda one: asked.append(one.url) if "/series?" in one.url else None)
    await visitor.page.clock.install()
    await visitor.open("/deployments")
    await visitor.page.clock.run_for(61_000)
    await until(lambda: asked)
    asked.clear()
    await visitor.page.clock.run_for(61_000)
    await until(lambda: asked)
