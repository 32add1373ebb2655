"""Reports of load tests: an hour's figures, files, and page in Chromium.

The samples are in a file, as the processes of a load test write them; the page is opened by the
DevTools protocol with an empty profile, and has its time from the navigation to the end of `load`.
"""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import aiohttp

from hotplate.platform.loadtest.observation import Observation, ObservedRun
from hotplate.platform.loadtest.plan import LoadPlan
from hotplate.platform.loadtest.report import build, write
from hotplate.platform.loadtest.samples import RECORD, read
from hotplate.platform.loadtest.thresholds import parse
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import column

DURATION_S = 3600.0
REQUESTS = (100_000, 1_000_000)
GAPS = 1_000_000
"""Times between events, beside them."""
MIB = 1 << 20
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
LOADED_MS = "performance.timing.loadEventEnd - performance.timing.navigationStart"


@dataclass(frozen=True)
class Line:
    requests: int
    figures_s: float | None = column("figures s", 2)
    files_s: float | None = column("files s", 2)
    peak_mib: float | None = column("process MiB")
    html_mib: float | None = column("report.html MiB", 2)
    json_mib: float | None = column("report.json MiB", 2)
    page_ms: float | None = column("loaded in Chromium ms")


async def measure(folder: Path, quick: bool) -> Sequence[Line]:
    return [await _line(folder, requests) for requests in REQUESTS[: 1 if quick else None]]


async def _line(folder: Path, requests: int) -> Line:
    samples = folder / "samples-0.bin"
    due_s = _written(samples, requests)
    plan = LoadPlan("http://127.0.0.1:7100", "/", "call", DURATION_S, started_at=1.8e9)
    seen = ObservedRun(tuple(_observation(second) for second in range(int(DURATION_S))))
    gaps_s = array("f", [0.05]) * GAPS
    began = time.monotonic()
    report = build(
        plan, "chat", "day", due_s, read(samples), gaps_s, seen, DURATION_S, [parse("p95_s > 1")]
    )
    made = time.monotonic()
    write(folder, report)
    written = time.monotonic()
    if report["requests"] != requests:
        raise BenchmarkFailed(f"the report counts {report['requests']} requests of {requests}")
    return Line(
        requests,
        made - began,
        written - made,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        (folder / "report.html").stat().st_size / MIB,
        (folder / "report.json").stat().st_size / MIB,
        await _loaded_ms(folder / "report.html", folder / "profile") if CHROMIUM else None,
    )


def _written(path: Path, requests: int) -> array[float]:
    """The samples of so many requests in a file; when each was due."""
    rng = random.Random(1)
    due_s = array("d", sorted(rng.uniform(0, DURATION_S - 1) for _ in range(requests)))
    with path.open("wb") as file:
        for number, at_s in enumerate(due_s):
            took_s = rng.lognormvariate(-1.5, 0.5)
            status = 200 if rng.random() < 0.999 else 503
            record = (at_s, at_s, nan, at_s + took_s, status, 0, 0, number)
            file.write(RECORD.pack(*record))
    return due_s


def _observation(second: int) -> Observation:
    ready = 1 + second // 60 % 4
    return Observation(float(second), second % 7, 2 * ready, ready, second % 60 < 5, 2 * ready, 0.0)


async def _loaded_ms(page: Path, profile: Path) -> float:
    """How long Chromium takes to load the page. Raises BenchmarkFailed."""
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
        *(f"--user-data-dir={profile}", "about:blank"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        port = ""
        async with asyncio.timeout(60):
            while not port:
                line = (await process.stderr.readline()).decode()
                if not line:
                    raise BenchmarkFailed("chromium ended before it could be asked")
                _, _, address = line.partition("DevTools listening on ws://127.0.0.1:")
                port = address.partition("/")[0]
            return await _asked(f"http://127.0.0.1:{port}/json", page)
    except TimeoutError:
        raise BenchmarkFailed("chromium does not load the page in 60 s") from None
    finally:
        process.kill()
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _asked(url: str, page: Path) -> float:
    async with aiohttp.ClientSession() as http:
        async with http.get(url) as answer:
            tabs = await answer.json()
        async with http.ws_connect(tabs[0]["webSocketDebuggerUrl"]) as tab:
            await tab.send_json({"id": 1, "method": "Page.enable"})
            await tab.send_json(
                {"id": 2, "method": "Page.navigate", "params": {"url": page.as_uri()}}
            )
            while (await tab.receive_json()).get("method") != "Page.loadEventFired":
                pass
            asked = {"expression": LOADED_MS}
            loaded_ms = 0.0
            while loaded_ms <= 0:  # the event comes before its own end is noted
                await tab.send_json({"id": 3, "method": "Runtime.evaluate", "params": asked})
                while (answered := await tab.receive_json()).get("id") != 3:
                    pass
                loaded_ms = float(answered["result"]["result"]["value"])
            return loaded_ms
