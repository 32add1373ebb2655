"""A replica on a Unix socket: its service sees what it would see on a port of loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotplate.serving.replica.inside.reserved import DEPLOYMENT_URL
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import started, workload

SOURCE = """
    import json, os, bentoml
    from fastapi import FastAPI, Request, WebSocket

    app = FastAPI()

    @app.get("/who")
    def who(request: Request) -> list:
        return [*request.client, request.url.scheme, str(request.url), *request.scope["server"]]

    @app.websocket("/socket")
    async def socket(websocket: WebSocket):
        await websocket.accept()
        await websocket.send_json([websocket.client.host, websocket.url.scheme])
        await websocket.close()

    @bentoml.asgi_app(app)
    @bentoml.service(workers=2)
    class Echo:
        @bentoml.api
        def host(self, ctx: bentoml.Context) -> str:
            return ctx.request.client.host

        @bentoml.api
        def own(self) -> list:
            return [Echo.url, json.loads(os.environ["BENTOML_RUNNER_MAP"])]
"""
FORWARDED = {"X-Forwarded-For": "10.1.2.3", "X-Forwarded-Proto": "https"}
PUBLIC = "https://models.example/echo"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("unix")
    bento = write_bento(folder / "bento", SOURCE)
    served = workload(config={"workers": 2}, cloud={DEPLOYMENT_URL: PUBLIC})
    with started(folder, bento, served, at=folder / "socket"):
        yield folder / "socket"


async def ask(path: Path, target: str, method: str = "GET", **fields: str) -> Any:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http:
        asked = http.request(method, f"http://echo.test{target}", headers=fields, json={})
        async with asked as answer:
            text = await answer.text()
            assert answer.status == 200, text
            return json.loads(text) if text.startswith(("[", "{")) else text


async def test_who_calls_is_on_this_machine_or_whom_the_gateway_names(path: Path) -> None:
    url = "://echo.test/who"
    assert await ask(path, "/who") == ["127.0.0.1", 0, "http", f"http{url}", "127.0.0.1", 80]
    assert (await ask(path, "/who", **FORWARDED))[:4] == ["10.1.2.3", 0, "https", f"https{url}"]
    assert await ask(path, "/host", "POST", **FORWARDED) == "10.1.2.3"


async def test_a_websocket_knows_it_too(path: Path) -> None:
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as http:
        for fields, expected in (({}, ["127.0.0.1", "ws"]), (FORWARDED, ["10.1.2.3", "wss"])):
            async with http.ws_connect("http://echo.test/socket", headers=fields) as socket:
                assert await socket.receive_json() == expected


async def test_the_service_has_the_deployments_url_for_its_own(path: Path) -> None:
    assert await ask(path, "/own", "POST") == [PUBLIC, {"Echo": PUBLIC}]
