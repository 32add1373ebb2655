"""Serves the statistics of an accelerator on a port of its own, past the peer's queue.

Standard library only: peers import it in their own environments.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from loadtests.harness.accelerator import Accelerator


def serve_stats(accelerator: Accelerator, port: int) -> None:
    """Answers `/stats` in a thread of its own, for as long as the process lives."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(asdict(accelerator.stats())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: only the benchmark asks."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
