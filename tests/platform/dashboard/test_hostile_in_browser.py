"""Pages of which all is hostile, in a real browser: it is shown as it is, and runs nowhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.controller.planning.addresses import CallTarget
from hotplate.platform.store.parts import Store
from hotplate.platform.store.records import DecisionRecord
from tests.browser.visitor import NARROW, Visitor, chromium, needs_chromium
from tests.platform.dashboard.test_in_browser import REPLICA
from tests.support.control_plane.cloud import MANIFEST, Cloud, tar_of, versions
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.streamed_api import Served

pytestmark = needs_chromium
SCRIPT = (
    "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
    "<svg onload=\"document.title='pwned'\">{{7*7}}${7*7}"
)
KINDS = {
    "html": SCRIPT,
    "url": "javascript:document.title='pwned'",
    "turned": "\u202egnp.exe\u2066\u200f",
    "terminal": "\x1b[2J\x1b]0;pwned\x07\x9b31m",
    "long": "x" * 10_000,
}
ROUTES = [
    {
        "name": SCRIPT,
        "route": "/predict",
        "doc": text,
        "input": {
            "type": "object",
            "required": [text],
            "properties": {
                text: {"type": "string", "default": text, "description": text},
                "enum": {"enum": [text], "type": "string"},
            },
        },
        "output": {"type": "string"},
    }
    for text in KINDS.values()
]
OTHERS = (
    *("/", "/deployments", "/bentos", "/models", "/organization", "/organizations"),
    *("/api_tokens", "/secrets", "/audit", "/models/numbers/v1"),
)
TABS = ("", "/replicas", "/logs", "/revisions", "/why", "/playground", "/settings")
PAGES = (*OTHERS, *(f"/deployments/echo{tab}" for tab in TABS))
RUNS = """() => [
  ...[...document.querySelectorAll('main img, main script, main iframe, main svg:not(.spark)')],
  ...[...document.querySelectorAll('a')].filter(one => !/^https?:/.test(one.protocol)),
].map(one => one.outerHTML.slice(0, 200))"""
HEAD = {"X-BentoML-Request-ID": "7", "Content-Type": "text/html"}


async def plant(cloud: Cloud, controller: FakeController, text: str) -> None:
    """Wherever anybody may write something."""
    store = cloud.store
    await cloud.push_bento(manifest={**MANIFEST, "schema": {"name": "Echo", "routes": ROUTES}})
    words = {"key": text[:60], "value": text[:60]}
    envs = [{"name": "TEXT", "value": text}]
    await cloud.deploy(labels=[words], envs=envs)
    await controller.settled()
    one = store.deployments.find(cloud.user.organization.id, "echo")
    store.deployments.set_status(one, "failed", text)
    store.history.add_event(one.id, "ReplicaCrashed", text)
    now = datetime.now(UTC)
    store.history.add_decisions(one.id, [DecisionRecord(now, 1, text, 1, 1, 1, text)])
    keys = ("id", "node", "service", "reason", "out")
    phases = [{"name": text, "start": 1.0, "end": 2.0, "share_s": 1.0, "lasted_s": 1.0}]
    controller.replicas = [
        REPLICA | dict.fromkeys(keys, text) | {"phases": phases, "log_tail": [text]}
    ]
    controller.lines = [text, "the last line"]
    await cloud.call("POST", "/api/v1/api_tokens", {"name": text[:100]})
    content = {"type": "env", "items": [{"key": "KEY", "value": "v"}]}
    secret = {"name": "keys", "description": text[:500], "content": content}
    await cloud.call("POST", "/api/v1/org_secrets", secret)
    await _push_model(cloud, text[:200])
    organization = {"description": text[:1000]}
    await cloud.call("PATCH", "/api/v1/hotplate/organizations/acme", organization)


async def _push_model(cloud: Cloud, name: str) -> None:
    """One of whose files has that name."""
    files = {"model.yaml": "name: numbers\nversion: v1\n", name: "weights"}
    await cloud.register("model", "numbers", "v1")
    one = f"{versions('model', 'numbers')}/v1"
    await cloud.call("PATCH", f"{one}/start_upload")
    await cloud.call("PUT", f"{one}/upload", data=tar_of(files))


@pytest.fixture
async def cloud(
    store: Store, blobs: BlobStore, controller: FakeController, tmp_path: Path
) -> AsyncIterator[Cloud]:
    """An operator of all that there is of the API."""
    served = Served(store, blobs, controller, tmp_path)
    async with Cloud(await served.start(), store, operator=True) as cloud:
        yield cloud
    await controller.settled()
    await served.stop()


@pytest.fixture
async def visitor(cloud: Cloud) -> AsyncIterator[Visitor]:
    """The same, with a narrow window."""
    url = str(cloud.server.make_url("/")).rstrip("/")
    async with chromium() as browser, Visitor.coming(browser, url, width=NARROW) as visitor:
        await visitor.sign_in(cloud.token)
        yield visitor


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_shown_as_it_is_and_runs_nowhere(
    cloud: Cloud, visitor: Visitor, controller: FakeController, kind: str
) -> None:
    await plant(cloud, controller, KINDS[kind])
    found: dict[str, Any] = {}
    for path in PAGES:
        await visitor.open(path)
        wrong = [*await visitor.page.evaluate(RUNS), *await visitor.sideways()]
        wrong += visitor.complaints
        wrong += [] if "Hotplate" in await visitor.page.title() else ["its title is another one"]
        visitor.complaints.clear()
        if wrong:
            found[path] = wrong
    assert found == {}
    await visitor.open("/deployments/echo/replicas")
    words = "".join((await visitor.page.text_content("main") or "").split())
    assert "".join(KINDS[kind].split())[:50] in words


async def test_an_answer_of_a_deployment_is_text(
    cloud: Cloud, visitor: Visitor, controller: FakeController
) -> None:
    await plant(cloud, controller, "harmless")

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body="".join(KINDS.values()).encode(), headers=HEAD)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        controller.target = CallTarget(str(server.make_url("")).rstrip("/"))
        await visitor.open("/deployments/echo/playground")
        await visitor.page.get_by_role("button", name="Call", exact=True).click()
        await visitor.page.get_by_text("whole").wait_for()
        shown = await visitor.text("[aria-label='The answer']")
    assert SCRIPT in shown and "U+202E" in shown and "\u241b[2J" in shown
    assert await visitor.page.evaluate(RUNS) == []
    assert await visitor.sideways() == []
    assert "Hotplate" in await visitor.page.title()
    assert visitor.complaints == []


@pytest.mark.parametrize(
    "path",
    ["/deployments/nobody", "/deployments/nobody/logs", "/models/no/v1", "/codespaces/no", "/what"],
)
async def test_a_page_of_something_that_does_not_exist_leads_back(
    visitor: Visitor, path: str
) -> None:
    answer = await visitor.page.goto(visitor.url + path)
    assert answer is not None
    assert (answer.status, answer.headers["content-type"][:9]) == (404, "text/html")
    assert await visitor.sideways() == []
    await visitor.page.get_by_role("link").first.click()
    await visitor.page.wait_for_selector("main[data-page]")


@pytest.mark.parametrize("tab", TABS)
async def test_a_deployment_that_is_deleted_while_it_is_looked_at_is_said_to_be_gone(
    visitor: Visitor, cloud: Cloud, controller: FakeController, tab: str
) -> None:
    await cloud.push_bento()
    await cloud.deploy()
    await controller.settled()
    await visitor.open(f"/deployments/echo{tab}")
    await cloud.call("DELETE", "/api/v2/deployments/echo")
    await visitor.page.get_by_text("This deployment is gone").wait_for()
    await visitor.page.get_by_role("link", name="All deployments").click()
    await visitor.page.wait_for_selector("main[data-page=deployments]")


async def test_a_form_of_a_call_keeps_the_fields_of_the_method_apart_from_its_own(
    cloud: Cloud, controller: FakeController, visitor: Visitor, tmp_path: Path
) -> None:
    """A method may have parameters called so."""
    names = ("method", "path", "headers", "version", "body")
    properties: dict[str, Any] = {name: {"type": "string", "default": name} for name in names}
    file = {"file": {"type": "file", "format": "binary"}}
    route = {"name": "f", "route": "/f", "input": {"properties": properties | file}, "output": {}}
    await cloud.push_bento(manifest={**MANIFEST, "schema": {"name": "Echo", "routes": [route]}})
    await cloud.deploy(canary={"versions": {"next": {"bento": "echo:v1", "services": {}}}})
    await controller.settled()
    controller.ready_replicas = {"next": 1}
    got: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        form = await request.post()
        for name, value in form.items():
            if isinstance(value, web.FileField):
                got[name] = value.filename
            else:
                got[name] = json.loads(str(value))
        got["chosen"] = request.headers.get("Hotplate-Version")
        return web.json_response(None)

    app = web.Application()
    app.router.add_post("/f", answer)
    async with TestServer(app) as server:
        controller.target = CallTarget(str(server.make_url("")).rstrip("/"))
        await visitor.open("/deployments/echo/playground")
        (tmp_path / "a.bin").write_bytes(b"x")
        await visitor.page.locator("input[type=file]").set_input_files(tmp_path / "a.bin")
        choice = visitor.page.locator("select", has_text="as the weights say")
        await choice.select_option("next")
        await visitor.page.get_by_role("button", name="Call", exact=True).click()
        await visitor.page.get_by_text("whole").wait_for()
    assert got == {name: name for name in names} | {"file": "a.bin", "chosen": "next"}
    assert "Hotplate-Version: next" in await visitor.text("pre.curl")
    assert '"Hotplate-Version"] = "next"' in await visitor.text("pre.python")
    assert json.loads(await visitor.text("[aria-label='The answer']")) is None
