"""The processes of a replica with several workers, on one socket; Python >= 3.9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from hotplate.serving.replica.inside.patches.running import Running

Job = dict[str, Any]


class Worker(Protocol):
    """A child of this process, as `Popen` is one."""

    def send_signal(self, number: int, /) -> None: ...

    def wait(self) -> Any: ...


Start = Callable[[Job, int], Worker]
"""Starts the worker of a job; the descriptor is another worker's gate, which it must not have."""


class ForkedWorker:
    """One that has all that this process has imported."""

    def __init__(self, work: Callable[[], None], other_gate: int) -> None:
        """It does `work`, which ends it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._pid = os.fork()
        if self._pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._pid == 0:
            os.close(other_gate)
            work()

    def send_signal(self, number: int, /) -> None:
        if self._pid:
            os.kill(self._pid, number)

    def wait(self) -> None:
        os.waitpid(self._pid, 0)
        self._pid = 0


def start_worker(job: Job, _other_gate: int) -> Worker:
    """One that imports everything itself."""
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


def supervise(job: Job, start: Start = start_worker) -> int:
    """Starts the workers, each a process of its own; when one ends, all do."""
    children: list[Worker] = []
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
        gates = (first_gate, others_gate) if worker == 1 else (others_gate, first_gate)
        children.append(start({**job, "worker": worker, "gate": gates[0]}, gates[1]))
    os.close(others_gate)
    os.close(first_gate)
    if not asked.is_set():
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    stop()
    for child in children:
        child.wait()
    return 0 if asked.is_set() else 1
