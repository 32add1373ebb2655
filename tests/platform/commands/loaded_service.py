"""A service and its platform on one port, to be loaded: what it heard, and how it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

API = "/api/v1/hotplate/deployments"


class HeardRequest(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class LoadedService(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[HeardRequest] = []
        """What was posted."""
        self.schema: Any = {"routes": [route("/encode", text={"type": "string"})]}
        self.schema_status = 200
        self.status = 200
        self.said = b'{"ok": true}'
        self.deployments: dict[str, dict[str, Any]] = {}
        self.loaded = threading.Event()
        """So much was posted that some of it has been answered."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A load test that ends cuts off what is under way."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def deploy(self, name: str, **changes: Any) -> None:
        """The service, as the platform's API shows it."""
        self.deployments[name] = {
            "name": name,
            "status": "running",
            "reason": "",
            "wanted": "running",
            "url": self.url,
            "serving": 1,
            "labels": [],
            "config": {},
            "live": {
                "services": [{"max_replicas": 3, "queued": 2, "in_flight": 1, "gpus": 0.0}],
                "replicas": [{"state": "ready", "slots": {"number": 4}}],
            },
            **changes,
        }


def route(path: str, **properties: Any) -> dict[str, Any]:
    """A method as `/schema.json` lists it."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": path[1:], "route": path, "input": schema, "output": {"type": "string"}}


@contextmanager
def serving() -> Iterator[LoadedService]:
    with LoadedService() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: LoadedService
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        found = self._found()
        if self.path.startswith("/a?"):
            self._answer(200, "this is no JSON")
            return
        self._answer(404 if found is None else self.server.schema_status, json.dumps(found))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.heard.append(HeardRequest(self.path, dict(self.headers.items()), body))
        if len(self.server.heard) == 20:
            self.server.loaded.set()
        self._answer(self.server.status, self.server.said.decode())

    def _found(self) -> Any:
        deployments = self.server.deployments
        if self.path == "/schema.json":
            return self.server.schema
        if self.path == API:
            return list(deployments.values())
        name, _, page = self.path.removeprefix(f"{API}/").partition("/")
        if page.startswith("cold_starts"):
            return []
        return deployments.get(name)

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass
