"""What a replica says of its readiness: of itself to the platform, with what it calls to others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from hotplate.serving.gateway.protocol.routes import ReplicaRoute
from hotplate.serving.gateway.replicas.fence import FenceLines
from hotplate.serving.gateway.replicas.probe import probe
from tests.support.ports import free_port
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload

SOURCE = """
    import os
    import bentoml

    class Fragile:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            if scope.get("path") == "/fragile":
                raise RuntimeError("before it answered")
            await self.app(scope, receive, send)

    @bentoml.service
    class Back:
        @bentoml.api
        def echo(self, text: str) -> str:
            return text

    @bentoml.service
    class Other(Back.inner):
        pass

    @bentoml.service
    class Front:
        back = bentoml.depends(Back)
        other = bentoml.depends(Other, url=os.environ["OTHER"])

        def __is_ready__(self):
            return not os.path.exists(os.environ["UNREADY"])

        @bentoml.api
        def fragile(self) -> str:
            return "never"

    Front.add_asgi_middleware(Fragile)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readiness")


@pytest.fixture(scope="module")
def other() -> int:
    """The port of something that the service calls by URL; nothing listens there yet."""
    return free_port()


@pytest.fixture(scope="module")
def front(folder: Path, other: int) -> Iterator[Replica]:
    """Its sibling never answers: it is taken for granted that it does."""
    services: list[dict[str, Any]] = [
        {"name": "Front", "dependencies": [{"service": "Back"}]},
        {"name": "Back"},
        {"name": "Other"},
    ]
    bento = write_bento(folder / "bento", SOURCE, services=services)
    served = workload(
        "Front",
        depends={"Back": f"http://127.0.0.1:{free_port()}"},
        env={"OTHER": f"http://127.0.0.1:{other}", "UNREADY": str(folder / "unready")},
    )
    with started(folder, bento, served) as replica:
        yield replica


def said(replica: Replica, path: str) -> tuple[int, str]:
    try:
        return 200, replica.get(path).decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def asked_by_a_gateway(replica: Replica, uid: str = "") -> str:
    host, _, port = replica.url.removeprefix("http://").partition(":")

    async def ask() -> str:
        fence = FenceLines(ReplicaRoute("r1", f"{host}:{port}", worker=True, uid=uid), "acme/front")
        return await probe(lambda: asyncio.open_connection(host, int(port)), "/readyz", fence)

    return asyncio.run(ask())


def test_a_replica_answers_for_itself_and_for_what_it_calls_by_url(
    front: Replica, other: int
) -> None:
    assert said(front, "/readyz?of=itself")[0] == 200
    assert asked_by_a_gateway(front) == ""
    status, why_not = said(front, "/readyz")
    assert status == 503
    assert f"other, which this service calls at http://127.0.0.1:{other}: " in why_not
    with answering(other):
        assert said(front, "/readyz")[0] == 200
    assert "Traceback" not in front.log.read_text()


def test_an_authors_own_word_counts(front: Replica, folder: Path) -> None:
    (folder / "unready").touch()
    try:
        status, why_not = said(front, "/readyz?of=itself")
        assert (status, "__is_ready__" in why_not) == (503, True)
        assert asked_by_a_gateway(front) == "it is not ready (503)"
    finally:
        (folder / "unready").unlink()


def test_a_replica_is_not_ready_for_a_gateway_that_means_another(front: Replica) -> None:
    assert asked_by_a_gateway(front, front.uid) == ""
    assert asked_by_a_gateway(front, "another") == "another replica answers at its address"


def test_what_fails_before_it_answers_is_answered(front: Replica) -> None:
    assert said(front, "/fragile")[0] == 500


class answering:
    """Something at that port that is ready."""

    def __init__(self, port: int) -> None:
        class Ready(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Ready)

    def __enter__(self) -> None:
        threading.Thread(target=self._server.serve_forever).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
