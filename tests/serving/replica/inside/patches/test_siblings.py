"""What a service's calls to others of its revision carry, whichever client makes them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hotplate.serving.replica.inside.patches.siblings import Siblings, calling_url

PATHS = (
    *("/aiohttp", "/websocket", "/httpx-async", "/openai/models", "/httpx", "/redirected"),
    *("/requests", "/urllib3", "/urllib", "/http.client"),
)
SECRET = "0123456789abcdef" * 4


class Listener:
    """Keeps the head of each request, by its path."""

    def __init__(self) -> None:
        self.heads: dict[str, dict[str, str]] = {}
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Listener]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.heads[request.path] = {name.lower(): value for name, value in request.headers.items()}
        if to := request.query.get("to"):
            raise web.HTTPTemporaryRedirect(f"{to}/elsewhere")
        if request.path == "/websocket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.close()
            return socket
        return web.json_response({"object": "list", "data": []})


async def test_every_client_shows_the_secret_to_siblings_only_and_no_log_has_it() -> None:
    async with Listener().serving() as sibling, Listener().serving() as stranger:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.serving.replica.inside.patches.asking"),
            f"http://127.0.0.1:{stranger.port}",
            env={**os.environ, "INNER": calling_url(f"127.0.0.1:{sibling.port}", SECRET)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, logged = await program.communicate()
    assert program.returncode == 0, logged.decode()
    shown = {path: head.get("hotplate-secret") for path, head in sibling.heads.items()}
    assert shown == dict.fromkeys(PATHS, SECRET)
    for path in ("/aiohttp", "/openai/models", "/requests"):
        assert sibling.heads[path]["authorization"] == "Bearer own"
    assert stranger.heads.keys() == {"/elsewhere", "/stranger"}
    assert not [head for head in stranger.heads.values() if SECRET in str(head)]
    basics = [head.get("authorization", "") for head in sibling.heads.values()]
    assert set(basics) == {"", "Bearer own"}
    assert SECRET not in said.decode() + logged.decode()
    assert b"HTTP Request: GET" in logged, "httpx logs its URLs"


def test_a_url_is_a_siblings_by_its_host_and_port() -> None:
    siblings = Siblings({"A": calling_url("127.0.0.1:7001", SECRET), "B": "http://127.0.0.1:7002"})
    assert siblings.include("http://127.0.0.1:7001/v1") and siblings.include(
        "http://localhost:7002"
    )
    assert not siblings.include("http://127.0.0.1:7003") and not siblings.include("file:///7001")
    assert siblings.secret_of("localhost", 7001) == SECRET
    assert siblings.secret_of("127.0.0.1", 7002) == siblings.secret_of("a.example", 7001) == ""


@pytest.mark.parametrize("port", [None, 80], ids=["no port", "the port"])
def test_one_with_a_name_alone_is_known_however_a_library_names_its_port(port: int | None) -> None:
    siblings = Siblings({"A": calling_url("calls.acme.svc", SECRET)})
    assert siblings.secret_of("calls.acme.svc", port) == SECRET
    assert siblings.include(f"http://calls.acme.svc{f':{port}' if port else ''}/v1")
    assert not siblings.include("https://calls.acme.svc/v1")
    assert siblings.secret_of("calls.acme.svc", 443) == siblings.secret_of("acme.svc", port) == ""
