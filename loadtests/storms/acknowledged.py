"""A task is acknowledged when it is on the disk: no answer to a submission is sent before a sync.

The control plane's system calls are followed with strace, by the same clock as the client's.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import time
from bisect import bisect_left
from pathlib import Path

from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.verdict import Verdict
from loadtests.systems.kitchens import kitchens
from tests.support.patience import until
from tests.support.services.bentos import SIMMERING
from tests.support.services.calling import Tasks

_SYNC = re.compile(r"^\d+ +(?P<at>\d+\.\d+) f(?:data)?sync\(\d+<(?P<path>[^>]*)>")
"""A line of `strace -f -ttt -y`."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=200, help="submitted one after another")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    strace = shutil.which("strace")
    if strace is None:
        raise BenchmarkFailed(
            "this storm needs strace: install it (Debian: apt-get install strace)"
        )
    verdict = Verdict()
    async with kitchens(folder, source=SIMMERING) as place:
        url = await place.deploy("simmering", slots=4, min_replicas=1)
        tasks = Tasks(f"{url}/simmer")
        await tasks.reached(await tasks.submit(), "completed")
        calls = folder / "calls.txt"
        follow = ("-f", "-ttt", "-y", "-e", "trace=fsync,fdatasync", "-o", str(calls))
        pid = str(place.platform.pid("control-plane"))
        tracer = await asyncio.create_subprocess_exec(
            strace, *follow, "-p", pid, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await until(calls.exists)
            spans = []
            for _ in range(flags.tasks):
                sent_at = time.time()
                await tasks.submit()
                spans.append((sent_at, time.time()))
        finally:
            tracer.terminate()
            await tracer.wait()
        synced = sorted(_synced(calls.read_text(), str(place.platform.data / "hotplate.db")))
    unsynced = [span for span in spans if not _any_within(synced, *span)]
    verdict.figures["tasks acknowledged"] = len(spans)
    verdict.figures["syncs of the database meanwhile"] = len(synced)
    verdict.figures["acknowledged without a sync"] = len(unsynced)
    verdict.broken += [f"a task was acknowledged without a sync at {at:.3f}" for _, at in unsynced]
    return verdict


def _synced(calls: str, database: str) -> list[float]:
    """When the database, or its log, was synced: seconds since 1970."""
    found = filter(None, map(_SYNC.match, calls.splitlines()))
    return [float(sync["at"]) for sync in found if sync["path"].startswith(database)]


def _any_within(moments: list[float], begin: float, end: float) -> bool:
    """`moments` are in order."""
    place = bisect_left(moments, begin)
    return place < len(moments) and moments[place] <= end
