"""A web server of files that obeys a test: ranges, versions, and ways to go wrong."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.patience import PATIENCE_S


@dataclass
class Ways:
    """How the server answers."""

    ranges: bool = True
    tags: bool = True
    """Whether it sends ETags, and minds those that it is sent."""
    head: bool = True
    """Whether it answers HEAD."""
    lengths: bool = True
    """Whether it says how long a body is; else it comes in pieces that each say so."""
    closes_after: int | None = None
    """Bytes of a body after which it closes the connection; of one body, the next."""
    bytes_per_s: float = 0.0
    """How fast each body is sent, when set."""
    refuses: int = 0
    """The status of every answer, when set."""
    moved: dict[str, str] = field(default_factory=dict)
    """Path → URL to redirect to."""
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """Path → more headers of its answers."""


class WebServer:
    """Serves `files` by path; folders get a page of links."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        **ways: Any,
    ) -> None:
        self.files = dict(files)
        self.tags = {path: f'"{number}"' for number, path in enumerate(files)}
        self.ways = Ways(**ways)
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and range of every request."""
        self.authorized: list[str] = []
        """The `Authorization` of every request."""
        self.sent_bytes = 0
        """Of bodies of files."""
        self.connections = 0
        self.lock = threading.Lock()
        self._news = threading.Condition()
        self._held: tuple[str, str] | None = None
        self.released = threading.Event()
        self._server = _Server((host, 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def change(self, path: str, content: bytes) -> None:
        self.files[path] = content
        self.tags[path] = f'"changed {len(self.requests)}"'

    def hold(self, path: str, offset: int) -> None:
        """Requests of that range of the file wait until `release`."""
        self._held = (path, f"bytes={offset}-")

    def wait_for(self, path: str, offset: int) -> None:
        """Returns when somebody has asked for that range."""
        wanted = (path, f"bytes={offset}-")
        with self._news:
            assert self._news.wait_for(
                lambda: any(
                    (one, span[: len(wanted[1])]) == wanted for _, one, span in self.requests
                ),
                timeout=PATIENCE_S,
            )

    def release(self) -> None:
        self.released.set()

    def note(self, method: str, path: str, span: str) -> None:
        with self._news:
            self.requests.append((method, path, span))
            self._news.notify_all()
        if self._held is not None and path == self._held[0] and span.startswith(self._held[1]):
            assert self.released.wait(PATIENCE_S)

    def of(self, method: str) -> list[str]:
        return [path for one, path, _ in self.requests if one == method]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


def _handler(server: WebServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.connections += 1

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            ways = server.ways
            span = self.headers.get("Range", "")
            server.authorized.append(self.headers.get("Authorization", ""))
            server.note(self.command, self.path, span)
            if ways.refuses or (self.command == "HEAD" and not ways.head):
                return self.end(ways.refuses or 405)
            if self.path in ways.moved:
                return self.end(302, Location=ways.moved[self.path])
            content = server.files.get(self.path)
            if content is None:
                return self.folder()
            headers = {"ETag": server.tags[self.path]} if ways.tags else {}
            wanted = self.headers.get("If-Match") if ways.tags else None
            if wanted and wanted != headers["ETag"]:
                return self.end(412)
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", span) if ways.ranges else None
            if found is None:
                return self.send(200, content, headers)
            first, last = int(found[1]), min(int(found[2]), len(content) - 1)
            if first >= len(content):
                return self.end(416)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            return self.send(206, content[first : last + 1], headers)

        def folder(self) -> None:
            below = [path for path in server.files if path.startswith(f"{self.path.rstrip('/')}/")]
            if not below:
                return self.end(404)
            if not self.path.endswith("/"):
                return self.end(301, Location=f"{self.path}/")
            names = [path.removeprefix(self.path).partition("/") for path in below]
            links = dict.fromkeys(name + slash for name, slash, _ in names)
            page = "".join(f'<a href="{link}">{link}</a>' for link in ("../", "?C=N;O=D", *links))
            self.end(200, page.encode())

        def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            ways = server.ways
            self.send_response(status)
            for name, value in (headers | server.ways.headers.get(self.path, {})).items():
                self.send_header(name, value)
            if ways.lengths:
                self.send_header("Content-Length", str(len(body)))
            else:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command == "HEAD":
                return
            with server.lock:
                cut, ways.closes_after = ways.closes_after, None
                server.sent_bytes += len(body[:cut])
            if ways.bytes_per_s:
                self.trickle(body, ways.bytes_per_s)
            elif ways.lengths:
                self.wfile.write(body[:cut])
            else:
                for at in range(0, len(body), 100_000):
                    piece = body[at : at + 100_000]
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = self.close_connection or cut is not None

        def trickle(self, body: bytes, bytes_per_s: float) -> None:
            piece = int(bytes_per_s / 20)
            for at in range(0, len(body), piece):
                self.wfile.write(body[at : at + piece])
                server.released.wait(1 / 20)

        def end(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in (headers | server.ways.headers.get(self.path, {})).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
