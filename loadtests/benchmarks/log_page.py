"""The dashboard's page of a log of 64 MiB, and of 10,000 lines a second that come while it is open.

The API is in this process, the page in headless Chromium with an empty profile. Each line begins
with the moment at which it was written, so what is drawn says how late it is; frames are timed by
the page. Before each figure of memory the browser's garbage is collected.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import CDPSession, Page, async_playwright

from hotplate.cache.store.blobs import BlobStore
from loadtests.harness.child_process import BenchmarkFailed
from loadtests.harness.report import column
from tests.support.control_plane.cloud import Cloud
from tests.support.control_plane.controller_fake import FakeController
from tests.support.control_plane.quick_store import QuickStore
from tests.support.control_plane.streamed_api import Served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
MIB = 1 << 20
SIZE_BYTES = 64 * MIB
LINES_S, EACH_S = 10_000, 0.1
SPAN_S, SPANS = 20.0, 4
QUICK_SPAN_S = 5.0
LINE = "x" * 85
WATCH = """() => {
  const seen = { lags: [], frames: [], before: performance.now() };
  globalThis.seen = seen;
  const frame = (now) => {
    seen.frames.push(now - seen.before);
    seen.before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  setInterval(() => {
    const at = parseInt(document.querySelector(".log > div:last-child bdi")?.textContent, 10);
    if (at) seen.lags.push(Date.now() - at);
  }, 100);
}"""
TAKEN = """() => {
  const { lags, frames } = seen;
  [seen.lags, seen.frames] = [[], []];
  return { lags, frames, rows: document.querySelectorAll(".log > div").length };
}"""


@dataclass(frozen=True)
class Line:
    span: str
    lines_s: float | None = column("lines/s written")
    usable_ms: float | None = column("usable after ms")
    late_p50_ms: float | None = column("drawn after ms p50")
    late_p95_ms: float | None = column("p95")
    frame_p95_ms: float | None = column("frame ms p95")
    click_ms: float | None = column("a click takes ms")
    rows: float | None = column("rows drawn")
    heap_mib: float | None = column("page's heap MiB", 1)


async def measure(folder: Path, quick: bool) -> Sequence[Line]:
    if not CHROMIUM:
        raise BenchmarkFailed("there is no Chromium; install it (Debian: apt-get install chromium)")
    store = QuickStore(folder / "hotplate.db")
    controller = FakeController(store)
    served = Served(store, BlobStore(f"file://{folder}/blobs"), controller, folder)
    log = folder / "log"
    _fill(log)
    controller.replicas = [{"id": "r-1", "service": "Echo", "state": "ready"}]
    controller.log_files = {"r-1": log}
    try:
        async with (
            Cloud(await served.start(), store, operator=True) as cloud,
            async_playwright() as playwright,
        ):
            await cloud.push_bento()
            await cloud.deploy()
            await controller.settled()
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox"]
            )
            page = await browser.new_page()
            await page.goto(f"{cloud.url}login")
            await page.fill("#token", cloud.token)
            await page.click("form[action='/login'] button")
            await page.wait_for_load_state()
            return await _looked_at(page, f"{cloud.url}deployments/echo/logs", log, quick)
    finally:
        await controller.settled()
        await served.stop()
        store.close()


def _fill(log: Path) -> None:
    with log.open("w") as file:
        for _ in range(SIZE_BYTES // 1000 // (len(LINE) + 1)):
            file.write(f"{LINE}\n" * 1000)


async def _looked_at(page: Page, url: str, log: Path, quick: bool) -> list[Line]:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    began = time.monotonic()
    await page.goto(url)
    await page.wait_for_selector(".log > div[data-replica]")
    usable_ms = 1000 * (time.monotonic() - began)
    opened = Line(f"opened, {SIZE_BYTES / MIB:.0f} MiB", None, usable_ms)
    await page.evaluate(WATCH)
    spans = [opened]
    writer = _Writer(log)
    try:
        for number in range(1 if quick else SPANS):
            spans.append(await _span(page, session, writer, number, quick))
    finally:
        writer.end()
    return spans


async def _span(page: Page, session: CDPSession, writer: _Writer, number: int, quick: bool) -> Line:
    span_s = QUICK_SPAN_S if quick else SPAN_S
    began, written = time.monotonic(), writer.written
    await page.evaluate(TAKEN)
    await asyncio.sleep(span_s / 2)
    clicked = time.monotonic()
    await page.get_by_label("wrap lines").set_checked(number % 2 == 0)
    await page.wait_for_selector(".log.wrapped" if number % 2 == 0 else ".log:not(.wrapped)")
    click_ms = 1000 * (time.monotonic() - clicked)
    await asyncio.sleep(max(0.0, began + span_s - time.monotonic()))
    seen: dict[str, Any] = await page.evaluate(TAKEN)
    lasted_s = time.monotonic() - began
    return Line(
        f"{number * span_s:.0f} to {(number + 1) * span_s:.0f} s",
        (writer.written - written) / lasted_s,
        None,
        _share(seen["lags"], 0.5),
        _share(seen["lags"], 0.95),
        _share(seen["frames"], 0.95),
        click_ms,
        seen["rows"],
        await _heap_mib(session),
    )


def _share(values: list[float], share: float) -> float | None:
    return sorted(values)[int(share * len(values))] if values else None


async def _heap_mib(session: CDPSession) -> float:
    await session.send("HeapProfiler.collectGarbage")
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")) / MIB


class _Writer:
    """Prints to a log, as a replica does, until it is ended."""

    def __init__(self, log: Path) -> None:
        self.written = 0
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _print(self) -> None:
        began, count = time.monotonic(), int(LINES_S * EACH_S)
        with self._log.open("a") as file:
            while not self._ended.wait(max(0.0, began + self.written / LINES_S - time.monotonic())):
                now = int(time.time() * 1000)
                file.writelines(f"{now} {LINE}\n" for _ in range(count))
                file.flush()
                self.written += count
