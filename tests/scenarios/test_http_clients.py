"""The HTTP clients that people use, as they are: BentoML's, curl, httpx, requests, a browser."""

from __future__ import annotations

import asyncio
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.end_to_end.any_platform import AnyPlatform
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import exit_of
from tests.support.services.shapes import Shapes

pytestmark = pytest.mark.client

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
SENT = bytes(range(256)) * (4 << 12)
"""4 MiB: what curl asks first about (`Expect: 100-continue`)."""


@pytest.fixture
async def closed(prefixed: str, platform: AnyPlatform) -> str:
    """A deployment that sleeps, and lets in who has a token."""
    await platform.asleep("prefixed")
    return prefixed


CLIENTS = """
import asyncio, importlib.util, json, pathlib, bentoml

closed, token, hall, tasks, sent = TOLD
sent = pathlib.Path(sent)
with bentoml.SyncHTTPClient(closed, token=token) as client:
    said = {"woken": client.hello(name="sync")}
with bentoml.SyncHTTPClient(hall) as client:
    if importlib.util.find_spec("PIL"):  # without it that client parses no file
        assert client.reverse(file=sent).read_bytes()[::-1] == sent.read_bytes()
    else:
        print("no file was fetched: Pillow is not installed")
    said["pieces"] = len("".join(client.lines(pieces=3)).splitlines())
    said["model"] = client.model(question={"text": "ab"})
    said["root"] = client.root("abc")
with bentoml.SyncHTTPClient(tasks) as client:
    try:
        client.toil.submit(seconds=0.0)
    except AttributeError as error:
        said["sync submit"] = str(error)  # the task is there, and its id is lost

async def later():
    async with bentoml.AsyncHTTPClient(closed, token=token) as client:
        said["async"] = await client.hello(name="async")
    async with bentoml.AsyncHTTPClient(hall) as client:
        said["async pieces"] = len([piece async for piece in client.events(pieces=3)])
    async with bentoml.AsyncHTTPClient(tasks) as client:
        task = await client.toil.submit(seconds=0.3)
        while (status := (await task.get_status()).value) == "pending":
            await asyncio.sleep(0.02)
        said["status"] = status
        while (await task.get_status()).value != "completed":
            await asyncio.sleep(0.1)
        said["task"] = sorted(await task.get())

asyncio.run(later())
print(json.dumps(said))
"""


async def test_bentomls_clients_wake_show_their_token_send_files_stream_and_run_tasks(
    platform: AnyPlatform, laptop: Laptop, closed: str, hall: str, tasks: str, tmp_path: Path
) -> None:
    sent = tmp_path / "sent.bin"
    sent.write_bytes(SENT)
    told = (closed, platform.callers_token, hall, tasks, str(sent))
    said = json.loads((await laptop.python(CLIENTS.replace("TOLD", repr(told)))).splitlines()[-1])
    assert said == {
        "woken": "hello sync",
        "pieces": 3,
        "model": {"text": "abab", "times": 0},
        "root": "cba",
        "sync submit": "'SyncHTTPClient' object has no attribute '_opened_files'",
        "async": "hello async",
        "async pieces": 3,
        "status": "in_progress",
        "task": ["began", "ended", "pid"],
    }


async def curl(folder: Path, *arguments: str) -> str:
    """What it prints, answers and reports alike."""
    status, said = await exit_of(["curl", "-sS", *arguments], {}, folder)
    assert status == 0, said
    return said


async def test_curl_sends_large_bodies_when_told_to(hall: str, tmp_path: Path) -> None:
    (tmp_path / "sent.bin").write_bytes(SENT)
    url = f"{hall}/reverse"
    said = await curl(tmp_path, "-v", "-F", "file=@sent.bin", "-o", "got.bin", url)
    assert "< HTTP/1.1 100 Continue" in said
    assert (tmp_path / "got.bin").read_bytes() == SENT[::-1]


async def test_curl_speaks_http_1_0_and_streams(hall: str, tmp_path: Path) -> None:
    body = ("-H", "Content-Type: application/json", "-d", '{"pieces": 3}')
    for flag in ("--http1.0", "-N"):
        said = await curl(tmp_path, flag, "-i", *body, f"{hall}/lines")
        assert said.count('"number"') == 3
        assert ("Transfer-Encoding: chunked" in said) == (flag == "-N")


async def test_httpx_asks_and_streams(hall: str) -> None:
    with httpx.Client(base_url=hall) as waiting:
        ask = partial(waiting.post, "/model", json={"question": {"text": "ab"}})
        assert (await asyncio.to_thread(ask)).json()["text"] == "abab"
    async with (
        httpx.AsyncClient(base_url=hall) as client,
        client.stream("POST", "/events", json={"pieces": 3}) as answer,
    ):
        assert len([line async for line in answer.aiter_lines() if line]) == 3


async def test_requests_asks_and_streams(hall: str) -> None:
    requests = pytest.importorskip("requests", reason="the requests library is not installed")

    def ask() -> Any:
        with requests.Session() as session:
            lines = session.post(f"{hall}/lines", json={"pieces": 3}, stream=True).iter_lines()
            text = {"Content-Type": "text/plain"}
            root = session.post(f"{hall}/root", data="abc", headers=text).text
            return len([line for line in lines if line]), root

    assert await asyncio.to_thread(ask) == (3, "cba")


async def test_a_preflight_wakes_nobody_and_needs_no_token(
    closed: str, shapes: Shapes, platform: AnyPlatform
) -> None:
    asked = {
        "Origin": shapes.page,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    async with httpx.AsyncClient(base_url=closed) as client:
        answer = await client.options("/v1/say/hello", headers=asked)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == shapes.page
        refused = await client.post("/v1/say/hello", headers={"Origin": shapes.page}, json={})
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == shapes.page
    assert await platform.replicas("prefixed") == []


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
async def test_a_page_of_another_origin_calls_streams_and_reads_refusals(
    hall: str, closed: str, shapes: Shapes, platform: AnyPlatform, tmp_path: Path
) -> None:
    told = {"hall": hall, "closed": closed, "token": platform.callers_token}
    (tmp_path / "page.html").write_text(PAGE.replace("TOLD", json.dumps(told)))
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'user'}")
    wait = ("--virtual-time-budget=40000", "--timeout=40000", "--dump-dom")
    with served(tmp_path, shapes.page_port):
        command = [CHROMIUM, *flags, *wait, f"{shapes.page}/page.html"]
        _, dom = await exit_of(command, {"HOME": str(tmp_path)}, tmp_path)
    assert "<pre>" in dom, dom
    assert json.loads(dom.partition("<pre>")[2].partition("</pre>")[0]) == {
        "model": "abab",
        "stamp": "stamped",
        "pieces": 3,
        "refused": [401, "unauthorized"],
        "woken": "hello page",
    }


PAGE = """<!doctype html><body><script>
const told = TOLD;
const post = (url, body, headers) => fetch(url, {
  method: "POST",
  headers: {"Content-Type": "application/json", ...headers},
  body: JSON.stringify(body),
});
async function main() {
  const said = {};
  const model = await post(told.hall + "/model", {question: {text: "ab"}});
  said.model = (await model.json()).text;
  said.stamp = model.headers.get("X-Stamp");
  const events = await post(told.hall + "/events", {pieces: 3});
  said.pieces = (await events.text()).split("data: ").length - 1;
  const hello = told.closed + "/v1/say/hello";
  const refused = await post(hello, {name: "page"});
  said.refused = [refused.status, (await refused.json()).error.code];
  const token = {Authorization: "Bearer " + told.token};
  said.woken = await (await post(hello, {name: "page"}, token)).text();
  return said;
}
main().catch(error => ({error: String(error)})).then(said => {
  document.body.innerHTML = "<pre></pre>";
  document.querySelector("pre").textContent = JSON.stringify(said);
});
</script></body>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: the browser asks for an icon too."""


@contextmanager
def served(folder: Path, port: int) -> Iterator[None]:
    """The folder's files, on a port of this machine."""
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()
