"""An answer that is a pickle may run any code: whose answers a service reads."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from hotplate.serving.replica.inside.patches.siblings import calling_url
from tests.support.replica.bentos import write_bento
from tests.support.replica.replicas import Replica, started, workload

SOURCE = """
    import asyncio, os, bentoml

    @bentoml.service
    class Back:
        @bentoml.api
        def echo(self, number: int) -> int:
            return number

        @bentoml.api
        def text(self) -> str:
            return ""

    @bentoml.service
    class Front:
        back = bentoml.depends(Back)

        @bentoml.api
        async def sibling(self) -> int:
            return await self.back.to_async.echo(number=1)

        @bentoml.api
        async def another(self, url: str, method: str = "echo") -> str:
            from _bentoml_impl.client import RemoteProxy

            arguments = {"number": 1} if method == "echo" else {}
            proxy = RemoteProxy(url, service=Back)
            try:
                return str(await proxy.to_async.call(method, **arguments))
            except bentoml.exceptions.BentoMLException as error:
                return str(error)
            finally:
                await proxy.close()

        @bentoml.api
        def another_by_httpx(self, url: str) -> str:
            from _bentoml_impl.client.http import SyncHTTPClient

            how = {"media_type": "application/vnd.bentoml+pickle", "server_ready_timeout": 0}
            with SyncHTTPClient(url, service=Back, **how) as client:
                try:
                    return str(client.echo(number=1))
                except bentoml.exceptions.BentoMLException as error:
                    return str(error)
"""


class Harm:
    """Writes the file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@contextmanager
def answering(body: bytes, to: str = "") -> Iterator[str]:
    """The URL of a server that gives that answer, or leads elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(303 if to else 200)
            self.send_header("Content-Type", "application/vnd.bentoml+pickle")
            self.send_header("Content-Length", str(len(body)))
            if to:
                self.send_header("Location", f"{to}{self.path}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield calling_url(f"127.0.0.1:{server.server_port}", "")
        server.shutdown()


@contextmanager
def front(folder: Path, sibling: str) -> Iterator[Replica]:
    services: list[dict[str, Any]] = [
        {"name": "Front", "dependencies": [{"service": "Back"}]},
        {"name": "Back"},
    ]
    bento = write_bento(folder / "bento", SOURCE, services=services)
    with started(folder, bento, workload("Front", depends={"Back": sibling})) as replica:
        yield replica


def test_answers_of_siblings_are_read_and_no_others(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    with (
        answering(pickle.dumps(7)) as sibling,
        answering(pickle.dumps(Harm(harm))) as evil,
        answering(b"a text") as other,
        front(tmp_path, sibling) as replica,
    ):
        assert replica.call("sibling") == 7
        for way in ("another", "another_by_httpx"):
            said = replica.get(f"/{way}", json.dumps({"url": evil}).encode()).decode()
            assert "is read from services of the same revision only" in said
        assert (
            replica.get("/another", b'{"url": "%s", "method": "text"}' % other.encode())
            == b"a text"
        )
        assert not harm.exists()


def test_a_sibling_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    with answering(pickle.dumps(Harm(harm))) as evil, answering(b"", to=evil) as sibling:
        with front(tmp_path, sibling) as replica, pytest.raises(HTTPError):
            replica.call("sibling")
        assert not harm.exists()
