"""BentoML alone: a service whose synchronous handlers do what `loadtests.programs.backend` does.

Its `threads` are the slots and its queue, as BentoML has no other that holds requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import bentoml

from loadtests.harness.accelerator import Accelerator
from loadtests.peers.stats_server import serve_stats

SLOTS = int(os.environ["BENCH_SLOTS"])
ANSWER = "x" * 1000


def _api(name: str, work_s: float) -> Any:
    def work(self: Bench, text: str) -> dict[str, str]:
        return self.work(work_s)

    work.__name__ = name  # BentoML finds it by this name
    return bentoml.api(work, route=f"/work/{work_s:g}")


@bentoml.service(threads=SLOTS, traffic={"timeout": float(os.environ["BENCH_TIMEOUT_S"])})
class Bench:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        async def run() -> None:
            self._accelerator = Accelerator(SLOTS)
            serve_stats(self._accelerator, int(os.environ["BENCH_STATS_PORT"]))
            started.set()
            await asyncio.Event().wait()

        self._loop.run_until_complete(run())

    def work(self, work_s: float) -> dict[str, str]:
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._accelerator.begin, work_s, done.set)
        done.wait()
        return {"answer": ANSWER}

    at_once = _api("at_once", 0)
    briefly = _api("briefly", 0.01)
    longer = _api("longer", 0.05)
