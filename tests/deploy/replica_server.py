"""A replica's process for tests: a small HTTP server on the inherited socket.

Its job (standard input) has the knobs: `ready_after_s`, `broken` (a path: exits with 3 while that
exists), `ignores_sigterm`, `child` (starts a process that ignores SIGTERM), `lines` (log lines).
It answers 503 while a file `unready` is in its directory.
"""

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path


def main() -> None:
    job = json.load(sys.stdin)
    folder = Path(os.environ["HOTPLATE_REPLICA_DIR"])
    for line in range(job.get("lines", 1)):
        print(f"line {line}", flush=True)
    if job.get("broken") and Path(job["broken"]).exists():
        print("it is broken", file=sys.stderr)
        sys.exit(3)
    if job.get("child"):
        (folder / "child").write_text(str(start_child()))
    if job.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    select.select([], [], [], job.get("ready_after_s", 0))
    (folder / "seen.json").write_text(json.dumps(dict(os.environ)))
    serve(socket.socket(fileno=int(os.environ["HOTPLATE_LISTEN_FD"])), folder)


def start_child() -> int:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # its own group: only the session still ties it to us
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            signal.pause()
    return child


def serve(listener: socket.socket, folder: Path) -> None:
    while True:
        connection, _ = listener.accept()
        connection.recv(65536)
        status = "503 Not Ready" if (folder / "unready").exists() else "200 OK"
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        connection.close()


main()
