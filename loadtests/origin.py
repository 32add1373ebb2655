"""An origin of a given speed: files of a folder over HTTP, whole or in ranges, read-only.

All connections share one link, as they share a machine's network card; so a reader with many
connections is not faster than one with a single one.
"""

from __future__ import annotations

import argparse
import json
import mmap
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SLICE_BYTES = 256 << 10
CREDIT_S = 0.02
"""How much lost time the link makes up for: a sleep may last longer than was asked."""


class Wire:
    """A link that passes `bytes_per_s`."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._lock = threading.Lock()

    def carry(self, size_bytes: int) -> None:
        """Returns when that many bytes more have gone through."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now - CREDIT_S, self._free_at) + size_bytes / self._bytes_per_s
            wait_s = self._free_at - now
        if wait_s > 0:
            time.sleep(wait_s)  # this wait is the link: its caller has a thread of its own


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path
    wire: Wire

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        file = self.root / self.path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        size = file.stat().st_size
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(span[1]), min(int(span[2]) + 1, size)) if span else (0, size)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if with_body and stop > start:
            self._send(file, start, stop)

    def _send(self, file: Path, start: int, stop: int) -> None:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            for at in range(start, stop, SLICE_BYTES):
                piece = data[at : min(at + SLICE_BYTES, stop)]
                self.wire.carry(len(piece))
                self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--bytes-per-s", type=float, required=True)
    flags = parser.parse_args()
    Handler.root, Handler.wire = flags.root, Wire(flags.bytes_per_s)
    with Server(("127.0.0.1", 0), Handler) as server:
        print(json.dumps({"port": server.server_port}), flush=True)
        server.serve_forever()
