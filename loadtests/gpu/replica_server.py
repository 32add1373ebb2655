"""A replica's process without BentoML: HTTP on the inherited socket, answered by the GPU.

It answers `GET /readyz` when the GPU has computed once; `POST /work` computes again.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from loadtests.gpu.kernel import answer, has_context


class Handler(BaseHTTPRequestHandler):
    had_context = False

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(answer() | {"had_context": self.had_context})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs nothing: the log is for errors."""

    def _answer(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(job: dict[str, Any]) -> int:
    """Answers until it is ended. A standby does the same when it has its job."""
    Handler.had_context = has_context()
    answer()
    listener = socket.socket(fileno=int(os.environ["HOTPLATE_LISTEN_FD"]))
    server = ThreadingHTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()
    return 0


if __name__ == "__main__":
    serve(json.load(sys.stdin))
