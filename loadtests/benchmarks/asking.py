"""What the load maker of `hotplate loadtest` asks on one core, beside Locust's own users.

The server has the last core. CPU is that of all processes, less that of a start without requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from hotplate.platform.loadtest import plan as plans
from hotplate.platform.loadtest import samples
from hotplate.platform.loadtest.load_maker import ARRIVALS
from hotplate.platform.loadtest.plan import LoadPlan
from loadtests.harness.bounds import BoundedRow, at_least, verdict
from loadtests.harness.child_process import BenchmarkFailed, module, running
from loadtests.harness.report import column
from loadtests.systems.open_load import begin

REQUESTS_PER_S = 1500
STREAMS, EVENTS_PER_S = 300, 20
USERS = 150
"""Of the peer: each asks so often that all together ask as often as the load maker."""
BODY = b'{"text": "%b"}' % (b"x" * 1012)
SLOTS = 100_000
PARTS = ["requests", "streams"]


@dataclass(frozen=True)
class Row(BoundedRow):
    ours: float | None = column("load maker")
    users: float | None = column("Locust's FastHttpUser")
    digits: int = 2
    """How the figures are shown."""


@dataclass(frozen=True)
class Asked:
    """One run."""

    achieved: float
    """In units of what was asked."""
    cpu_s: float
    """For each 10,000 requests, or events."""
    late_ms: float | None = None
    """How long after it was due a request was sent, p99."""


async def measure(folder: Path, quick: bool, *parts: str) -> Sequence[Row]:
    seconds = 2 if quick else 15
    rows: list[Row] = []
    async with running(
        *module("loadtests.programs.backend", "--concurrency", SLOTS),
        *("--record", folder / "record"),
        log=folder / "backend.log",
        piped=True,
    ) as server:
        url = f"http://127.0.0.1:{(await server.next_json())['port']}"
        server.pin(max(os.sched_getaffinity(0)))
        for part in parts or PARTS:
            ours = await asyncio.to_thread(_ours, part, url, seconds, folder)
            users = await asyncio.to_thread(_users, part, url, seconds, folder)
            rows += _rows(part, ours, users)
    return rows


def _rows(part: str, ours: Asked, users: Asked) -> list[Row]:
    what, unit = {
        "requests": (f"{REQUESTS_PER_S:,} requests/s", "requests"),
        "streams": (f"{STREAMS} streams of {EVENTS_PER_S} events/s", "events"),
    }[part]
    bound = at_least(0.98)
    return [
        Row(
            f"{what}: achieved / asked",
            bound.text,
            verdict(bound.holds(ours.achieved)),
            ours.achieved,
            users.achieved,
            digits=3,
        ),
        Row(f"the same: CPU s per 10k {unit}", ours=ours.cpu_s, users=users.cpu_s),
        Row("the same: sent late, p99 ms", ours=ours.late_ms),
    ]


def _ours(part: str, url: str, seconds: int, folder: Path) -> Asked:
    if part == "requests":
        due_s = [number / REQUESTS_PER_S for number in range(REQUESTS_PER_S * seconds)]
        fields: dict[str, Any] = {"route": "/work/0", "kind": "call"}
    else:
        due_s = [number / STREAMS for number in range(STREAMS)]
        fields = {"route": _streaming(seconds), "kind": "stream"}
    plan = LoadPlan(url, duration_s=seconds, started_at=0.0, timeout_s=60.0, **fields)
    idle_s = _carried_out(replace(plan, duration_s=0.0), (), folder / f"{part}-idle")
    cpu_s = _carried_out(plan, due_s, folder / part) - idle_s
    found = list(samples.read(folder / part / plans.SAMPLES.format(0)))
    if not found or not all(sample.answered for sample in found):
        raise BenchmarkFailed(f"{len(found)} of {len(due_s)} {part} were sent, or some failed")
    late_ms = 1000 * quantiles([sample.sent_s - sample.due_s for sample in found], n=100)[98]
    if part == "requests":
        in_time = sum(sample.sent_s <= seconds for sample in found)
        return Asked(in_time / len(due_s), cpu_s / len(found) * 10_000, late_ms)
    gaps = array("f", (folder / part / samples.GAPS.format(0)).read_bytes())
    events = sum(sample.events for sample in found)
    return Asked(1 / EVENTS_PER_S / fmean(gaps), cpu_s / events * 10_000, late_ms)


def _carried_out(plan: LoadPlan, due_s: Sequence[float], folder: Path) -> float:
    """Returns the CPU seconds of all of Locust's processes."""
    with _on_first_core():
        before_s = _children_s()
        maker = begin(folder, plan, due_s, BODY)
    maker.wait()
    if maker.last_words:
        raise BenchmarkFailed(f"the load maker has failed: {maker.last_words}")
    return _children_s() - before_s


def _users(part: str, url: str, seconds: int, folder: Path) -> Asked:
    """FastHttpUsers that together ask as often."""
    if part == "requests":
        route, count, per_user = "/work/0", USERS, REQUESTS_PER_S / USERS
    else:
        route, count, per_user = _streaming(seconds), STREAMS, 0.001  # each asks once
        seconds += 2
    file = "endpoint" if part == "requests" else "streams"
    flags = ("--host", url, "--route", route, "--payload", BODY.decode(), "--per-user", per_user)
    _, idle_s = _locust(folder, file, *flags, "-u", 0, "-t", "1s")
    rows, cpu_s = _locust(folder, file, *flags, "-u", count, "-r", count, "-t", f"{seconds}s")
    if part == "requests":
        asked = rows["POST"]["num_requests"]
        return Asked(asked / (REQUESTS_PER_S * seconds), (cpu_s - idle_s) / asked * 10_000)
    between = rows["BETWEEN"]
    events = between["num_requests"] + rows["FIRST"]["num_requests"]
    gap_s = between["total_response_time"] / between["num_requests"] / 1000
    return Asked(1 / EVENTS_PER_S / gap_s, (cpu_s - idle_s) / events * 10_000)


def _locust(folder: Path, file: str, *flags: object) -> tuple[dict[str, Mapping[str, Any]], float]:
    """The rows of its statistics by type, and its CPU seconds."""
    path = ARRIVALS.with_name(f"{file}.py")
    command = [sys.executable, "-m", "locust", "-f", path, "--headless", "--json", *flags]
    with _on_first_core():
        before_s = _children_s()
        done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise BenchmarkFailed(f"locust has failed: {done.stderr.decode()[-500:]}")
    return {row["method"]: row for row in json.loads(done.stdout)}, _children_s() - before_s


def _streaming(seconds: int) -> str:
    return f"/tokens/{EVENTS_PER_S * seconds}/{1 / EVENTS_PER_S}"


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _on_first_core() -> Iterator[None]:
    """What this thread starts meanwhile has one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
