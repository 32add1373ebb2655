"""An origin: files of a folder over HTTP, whole or in ranges, read-only, and as buckets of S3.

A first folder is a bucket (`/bucket/key`), which can be listed. Bytes go from the page cache to
the socket without a copy, so that the origin is the fastest part. The speed of connections can be
limited. For every line that it reads it prints how many bytes of files it has sent, by first
folder.
"""

from __future__ import annotations

import argparse
import json
import mmap
import re
import sys
import threading
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from loadtests.harness.pace import pace

SEND_BYTES = 8 << 20


class Sent:
    """Bytes of bodies, by first folder. Thread-safe."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, folder: str, size_bytes: int) -> None:
        with self._lock:
            self.bytes[folder] += size_bytes


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    root: Path
    sent = Sent()

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        where = urlsplit(self.path)
        file = self.root / unquote(where.path).lstrip("/")
        query = parse_qs(where.query)
        if "list-type" in query:
            self._list(file, query.get("prefix", [""])[0])
        elif file.is_file():
            self._give(file, with_body)
        else:
            self.send_error(404)

    def _give(self, file: Path, with_body: bool) -> None:
        stat = file.stat()
        etag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
        if self.headers.get("If-Match", etag) != etag:
            self.send_error(412)
            return
        span = self._span(stat.st_size) if self.headers.get("If-Range", etag) == etag else None
        start, stop = span or (0, stat.st_size)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{stat.st_size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", formatdate(stat.st_mtime, usegmt=True))
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if with_body and stop > start:
            self._send(file, start, stop)

    def _span(self, size: int) -> tuple[int, int] | None:
        """The positions of the first byte and after the last one; None = the whole file."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if found is None or found[0] == "bytes=-":
            return None
        if not found[1]:
            return max(0, size - int(found[2])), size
        return int(found[1]), min(int(found[2]) + 1, size) if found[2] else size

    def _send(self, file: Path, start: int, stop: int) -> None:
        folder = file.relative_to(self.root).parts[0]
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            view = memoryview(data)
            try:
                for at in range(start, stop, SEND_BYTES):
                    until = min(at + SEND_BYTES, stop)
                    self.connection.sendall(view[at:until])
                    self.sent.add(folder, until - at)
            finally:
                view.release()

    def _list(self, bucket: Path, prefix: str) -> None:
        keys = {str(path.relative_to(bucket)): path for path in bucket.rglob("*") if path.is_file()}
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, path in sorted(keys.items())
            if key.startswith(prefix)
        )
        body = (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{escape(bucket.name)}</Name><IsTruncated>false</IsTruncated>{found}"
            "</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing: benchmarks kill clients."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--bytes-per-s", type=float, default=0.0, help="of a connection; 0 = any")
    flags = parser.parse_args()
    Handler.root = flags.root
    with Server((flags.host, 0), Handler) as server:
        if flags.bytes_per_s:
            pace(server.socket, flags.bytes_per_s)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(json.dumps({"port": server.server_port}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(Handler.sent.bytes), flush=True)


if __name__ == "__main__":
    main()
