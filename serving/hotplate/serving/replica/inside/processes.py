"""The processes of a replica with several workers, on one socket; Python >= 3.9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from hotplate.serving.replica.inside.patches.handlers import Running


def supervise(job: dict[str, Any]) -> int:
    """Starts the workers, each a process of its own; when one ends, all do."""
    children: list[subprocess.Popen[bytes]] = []
    asked = threading.Event()

    def stop() -> None:
        for child in children:
            child.send_signal(signal.SIGTERM)

    def on_signal(*_: Any) -> None:
        asked.set()
        stop()

    signal.signal(signal.SIGTERM, on_signal)
    others_gate, first_gate = os.pipe()
    job = {**job, "running": Running.share(job["workers"])}
    for worker in range(1, job["workers"] + 1):
        gate = first_gate if worker == 1 else others_gate
        children.append(_start_worker({**job, "worker": worker, "gate": gate}))
    os.close(others_gate)
    os.close(first_gate)
    if not asked.is_set():
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    stop()
    for child in children:
        child.wait()
    return 0 if asked.is_set() else 1


def _start_worker(job: dict[str, Any]) -> subprocess.Popen[bytes]:
    fds = (int(os.environ["HOTPLATE_LISTEN_FD"]), job["gate"], job["running"])
    child = subprocess.Popen(
        [sys.executable, "-m", "hotplate.serving.replica.inside.worker"],
        stdin=subprocess.PIPE,
        pass_fds=fds,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(job).encode())
    child.stdin.close()
    return child
