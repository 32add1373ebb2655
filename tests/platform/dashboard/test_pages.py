"""The page of a deployment: who sees it, and what stands in it."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import pytest
from aiohttp import ClientSession

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.store.parts import Store
from tests.support.control_plane.cloud import MANIFEST, Cloud
from tests.support.control_plane.controller_fake import FakeController

ECHO = "/deployments/echo"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7 * 7 }}"
SCHEMA = {
    "routes": [
        {
            "name": "predict",
            "route": "/predict",
            "doc": EVIL,
            "input": {
                "type": "object",
                "properties": {"text": {"type": "string", "default": EVIL}},
                "required": ["text"],
            },
            "output": {"type": "string"},
        }
    ]
}


class Elements(HTMLParser):
    """What a browser would see as elements, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str
    elements: Elements = field(init=False)

    def __post_init__(self) -> None:
        self.elements = Elements(self.text)


async def look(cloud: Cloud, path: str = ECHO, **headers: str) -> Answer:
    """As a browser, which has no token."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        ClientSession(cloud.server.make_url("/")) as http,
        http.get(path, headers=named) as answer,
    ):
        assert answer.content_type == "text/html"
        text = await answer.text()
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        digest = b64encode(sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in answer.headers["Content-Security-Policy"]
        return Answer(answer.status, dict(answer.headers), text.replace(style, ""))


@pytest.fixture(autouse=True)
async def deployed(cloud: Cloud, controller: FakeController) -> None:
    await cloud.push_bento(manifest={**MANIFEST, "schema": SCHEMA})
    await cloud.deploy(labels=[{"key": "team", "value": EVIL}])
    await controller.settled()


async def test_it_says_how_the_deployment_is_what_happened_and_how_to_call_it(
    cloud: Cloud,
) -> None:
    page = await look(cloud)
    assert page.status == 200
    text = unescape(page.text)
    for said in ("echo:v1", "running", "http://127.0.0.1:7100/predict", "curl -X POST"):
        assert said in text
    assert "with bentoml.SyncHTTPClient('http://127.0.0.1:7100') as client:" in text
    assert "RolloutReady" in text
    assert "Refresh" not in page.headers


async def test_what_anybody_wrote_is_text_and_nothing_else(
    cloud: Cloud, controller: FakeController
) -> None:
    controller.failure = EVIL
    await cloud.deploy("broken", labels=[{"key": EVIL, "value": EVIL}])
    await controller.settled()
    page = await look(cloud, "/deployments/broken")
    assert EVIL in unescape(page.text)
    assert "last line" in page.text
    assert "49" not in re.sub(r"<time.*?</time>|.*<dt>Made.*", "", page.text)
    assert not {"script", "img", "iframe", "form"} & set(page.elements.found)
    assert not [name for name in page.elements.attributes if name.startswith("on")]
    missing = await look(cloud, "/deployments/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert missing.status == 404
    assert "script" not in missing.elements.found


async def test_no_script_runs_on_it_nobody_frames_it_and_nobody_keeps_it(cloud: Cloud) -> None:
    for path in (ECHO, "/deployments/nobody"):
        page = await look(cloud, path)
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert "style" not in page.elements.attributes


async def test_a_name_that_nobody_has_is_an_html_404(cloud: Cloud) -> None:
    page = await look(cloud, "/deployments/nobody")
    assert page.status == 404
    assert "nobody" in page.text


@pytest.mark.parametrize("host", ["[", "localhost:123456", "a b", "x\xff", "<b>", ""])
@pytest.mark.parametrize("path", [ECHO, "/deployments/%ff%00", f"/deployments/{'x' * 3000}?y=%3Cb"])
async def test_no_host_and_no_name_is_too_odd(
    cloud: Cloud, host: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cloud.server.port)
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("latin-1"))
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith("HTTP/1.1 4"), answer
    assert "b" not in Elements(answer).found
    assert caplog.records == []


@pytest.mark.parametrize(
    "headers",
    [{"X_Forwarded_For": "127.0.0.1"}, {"Forwarded": "for=_a"}],
)
async def test_who_is_not_at_this_machine_learns_how_to_ask_and_no_more(
    cloud: Cloud, headers: dict[str, str]
) -> None:
    pages = [await look(cloud, path, **headers) for path in (ECHO, "/deployments/nobody")]
    assert [page.status for page in pages] == [401, 401]
    assert re.sub(r"\becho\b|(?<=%2F)echo", "nobody", pages[0].text) == pages[1].text
    assert "X-YATAI-API-TOKEN" in pages[0].text
    assert "running" not in pages[0].text
    with_token = await look(cloud, ECHO, X_YATAI_API_TOKEN=cloud.token, **headers)
    assert with_token.status == 200


async def test_a_second_organization_ends_what_needs_no_token(cloud: Cloud, store: Store) -> None:
    async with Cloud(cloud.server, store, "other") as other:
        assert (await look(cloud)).status == 401
        assert (await look(cloud, X_YATAI_API_TOKEN=cloud.token)).status == 200
        assert (await look(cloud, X_YATAI_API_TOKEN=other.token)).status == 404


async def test_a_wrong_token_is_refused_also_at_this_machine(cloud: Cloud, store: Store) -> None:
    assert (await look(cloud, X_YATAI_API_TOKEN="wrong")).status == 401
    weak = store.tokens.add_token(cloud.user, "weak", scopes=("read_organization",))
    assert (await look(cloud, X_YATAI_API_TOKEN=weak)).status == 403


async def test_the_command_that_it_tells_is_harmless_whatever_the_link_was(cloud: Cloud) -> None:
    page = await look(cloud, "/deployments/x;$(reboot)`reboot`", Via="1.1 proxy")
    assert "get 'x;$(reboot)`reboot`'" in unescape(page.text)


async def test_a_page_of_what_is_on_its_way_is_asked_for_again(
    store: Store, blobs: BlobStore, controller: FakeController, cloud: Cloud
) -> None:
    deployment = store.deployments.find(cloud.user.organization.id, "echo")
    store.deployments.set_status(deployment, "deploying", "it waits: for 2 GPUs")
    page = await look(cloud)
    assert page.headers["Refresh"] == "5"
    assert "it waits: for 2 GPUs" in page.text
