"""Requests at a rate, however slow the answers: by the load maker of `hotplate loadtest`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep, time

from hotplate.platform.loadtest import plan as plans
from hotplate.platform.loadtest import samples
from hotplate.platform.loadtest.load_maker import LoadMaker
from hotplate.platform.loadtest.plan import LoadPlan
from loadtests.harness.child_process import START_S, BenchmarkFailed

LEAD_S = 0.5
ENDS_S = 5.0
"""What was due so long before the end must have been answered."""


@dataclass
class OpenLoad:
    """What came of it, once it is over."""

    rate_per_s: float
    requests: int = 0
    """That were due, but for those of the last seconds."""
    answered: int = 0
    sent_per_s: float = 0.0
    p95_s: float = 0.0
    """From when a request was due to the end of its answer."""
    failures: list[str] = field(default_factory=list)
    """Some of those that were not answered."""

    @property
    def failed(self) -> int:
        return self.requests - self.answered


def begin(folder: Path, plan: LoadPlan, due_s: Sequence[float], body: bytes) -> LoadMaker:
    """Starts the load maker in a new folder; it asks from half a second later on."""
    folder.mkdir()
    maker = LoadMaker(folder, plan)
    maker.start()
    give_up_at = monotonic() + START_S
    while not maker.ready and maker.running() and monotonic() < give_up_at:
        sleep(0.05)
    plans.write(folder, replace(plan, started_at=time() + LEAD_S), due_s, [body])
    return maker


@asynccontextmanager
async def open_load(
    url: str, route: str, rate_per_s: float, folder: Path, *, body: bytes, most_s: float
) -> AsyncIterator[OpenLoad]:
    """Asks until the block ends, for `most_s` at the most. Raises BenchmarkFailed."""
    plan = LoadPlan(url, route, "call", most_s, started_at=0.0)
    due_s = [number / rate_per_s for number in range(int(rate_per_s * most_s))]
    maker = await asyncio.to_thread(begin, folder, plan, due_s, body)
    began, load = monotonic() + LEAD_S, OpenLoad(rate_per_s)
    try:
        yield load
    finally:
        await asyncio.to_thread(maker.stop, START_S)
    if maker.last_words:
        raise BenchmarkFailed(f"the load maker has failed: {maker.last_words}")
    _note(load, folder, min(most_s, monotonic() - began) - ENDS_S)


def _note(load: OpenLoad, folder: Path, until_s: float) -> None:
    """What became of what was due by then."""
    found = [one for one in samples.read(folder / plans.SAMPLES.format(0)) if one.due_s < until_s]
    load.requests = max(0, int(until_s * load.rate_per_s) + 1)
    load.answered = sum(one.answered for one in found)
    load.sent_per_s = sum(one.sent_s < until_s for one in found) / until_s
    latencies_s = sorted(one.latency_s for one in found)
    load.p95_s = latencies_s[int(0.95 * len(latencies_s))] if latencies_s else 0.0
    for line in (folder / plans.COMPLAINTS.format(0)).read_text().splitlines():
        complaint = json.loads(line)
        load.failures.append(f"{complaint['status']} {complaint['text'][:200]}")
