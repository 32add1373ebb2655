"""Agents that speak the peers' protocol, and lie or stall."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from hotplate.cache.manifest import CHUNK_BYTES, chunk_digest

Kind = Literal["lies", "deceives", "stalls", "trickles"]


class BadPeer:
    """Claims to have everything, and gives wrong bytes, none, or one now and then.

    One that deceives attests the digests of its wrong bytes, as if they were right.
    """

    def __init__(self, kind: Kind, size_bytes: int, host: str = "127.0.0.1", port: int = 0) -> None:
        self.asked: list[int] = []
        """Chunks that it was asked for, in order."""
        count = -(-size_bytes // CHUNK_BYTES)
        left = threading.Event()
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                greeting = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                everything = [f"{(1 << count) - 1:x}"]
                shares = dict.fromkeys(greeting["shares"], everything)
                body = json.dumps({"id": kind * 2, "members": [], "shares": shares}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                index = int(self.path.rpartition("/")[2])
                asked.append(index)
                if kind == "stalls":
                    left.wait(30)
                length = min(CHUNK_BYTES, size_bytes - index * CHUNK_BYTES)
                self.send_response(200)
                if kind == "deceives":
                    self.send_header("hotplate-digest", chunk_digest(bytes(length)))
                    length = 0 if "hotplate-word" in self.headers else length
                self.send_header("Content-Length", str(length))
                self.send_header("hotplate-have", f"{(1 << count) - 1:x}")
                self.end_headers()
                for _ in range(length if kind == "trickles" else 0):
                    self.wfile.write(b"x")
                    if left.wait(0.2):
                        return
                self.wfile.write(bytes(length))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._left = left
        self._server = _Server((host, port), Handler)
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that have gone."""
