"""One deployment flooded, and slow callers by the hundred, while another deployment is used.

The flood's connections are far more than its queue takes; the slow ones send their head or body
drop by drop, or never read their answer, at the gateway and at the API.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

import aiohttp

from loadtests.harness.verdict import Verdict
from loadtests.systems.attackers import Targets, attacking
from tests.support.control_plane.cloud import MODEL_MANIFEST, tar_of
from tests.support.end_to_end.laptop import Laptop
from tests.support.end_to_end.platform_process import Platform, running
from tests.support.end_to_end.rough_client import RoughClient
from tests.support.memory import memory_bytes
from tests.support.services.bentos import KITCHEN

PACE_S = 0.05
MEASURED = ("gateway", "control-plane")
ANSWER_S = 10.0
"""A request of the steady callers that has no answer by then has failed."""
GROWTH_BYTES = 400 << 20
"""A role may take this much more under attack, for what callers send and do not read."""
MODEL_BYTES = 64 << 20
AWAKE = {"min_replicas": 1, "max_replicas": 1}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the attack lasts")
    parser.add_argument("--flood", type=int, default=1500, help="connections of the flood")
    parser.add_argument("--slow", type=int, default=200, help="slow callers of each of six kinds")


@dataclass
class Steady:
    """What a caller saw that asks at a steady pace, whatever else happens."""

    latencies_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def show(self, what: str, verdict: Verdict) -> None:
        figures = verdict.figures
        figures[f"{what}: requests sent"] = len(self.latencies_s) + len(self.failures)
        figures[f"{what}: requests failed"] = len(self.failures)
        if len(self.latencies_s) > 1:
            parts = quantiles(self.latencies_s, n=20)
            figures[f"{what}: p50, ms"] = round(parts[9] * 1000, 1)
            figures[f"{what}: p95, ms"] = round(parts[18] * 1000, 1)


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    async with running(folder / "data") as platform, RoughClient(platform) as rough:
        laptop = await Laptop.at(folder / "laptop", platform)
        tag = await laptop.build("kitchen", KITCHEN)
        for name in ("flooded", "steady"):
            await laptop.deploy(name, tag, Kitchen={"scaling": AWAKE})
        download = await _large_model(rough)
        steady_url = await platform.url_of("steady")
        calls = {
            "steady deployment": (f"{steady_url}/echo", {"text": "x"}),
            "API": (f"{platform.url}/api/v1/hotplate/deployments", None),
        }
        async with _calling(calls, platform.token) as calm:
            await asyncio.sleep(min(10.0, flags.seconds))
        targets = Targets(
            flooded_port=_port(await platform.url_of("flooded")),
            gateway_port=_port(steady_url),
            api_port=platform.port,
            token=platform.token,
            download=download,
            flood=flags.flood,
            slow=flags.slow,
        )
        before = _memory(platform)
        peak = dict(before)
        with attacking(targets) as counts:
            async with _calling(calls, platform.token) as attacked:
                ends_at = time.monotonic() + flags.seconds
                while time.monotonic() < ends_at:
                    await asyncio.sleep(1)
                    peak = {role: max(peak[role], now) for role, now in _memory(platform).items()}
        await asyncio.sleep(5)
        after = _memory(platform)
        healthy = await platform.healthy()
        logs = [platform.data / "logs" / f"{role}.log" for role in MEASURED]
        tracebacks = sum(log.read_text().count("Traceback") for log in logs)
    for what in calls:
        calm[what].show(f"{what}, calm", verdict)
        attacked[what].show(f"{what}, attacked", verdict)
        if attacked[what].failures or not attacked[what].latencies_s:
            verdict.broken.append(f"{what}: {attacked[what].failures[:3]}")
    verdict.figures |= dict(sorted(counts.items()))
    for role in MEASURED:
        shown = [round(each[role] / (1 << 20)) for each in (before, peak, after)]
        verdict.figures[f"{role}: MiB before, at most, after"] = shown
        if peak[role] - before[role] > GROWTH_BYTES:
            verdict.broken.append(f"{role} took {shown} MiB before, at most and after")
    if not any(counts[f"flood answered {status}"] for status in (429, 503, 504)):
        verdict.broken.append("the flood was never refused, so it was no flood")
    if not healthy or tracebacks:
        verdict.broken.append(f"healthy: {healthy}, tracebacks in the logs: {tracebacks}")
    return verdict


@asynccontextmanager
async def _calling(
    calls: Mapping[str, tuple[str, object]], token: str
) -> AsyncIterator[dict[str, Steady]]:
    """Each URL is asked at a steady pace while the block runs: POST where there is a body."""
    done = asyncio.Event()
    callers = {what: Steady() for what in calls}
    headers = {"X-YATAI-API-TOKEN": token}
    limit = aiohttp.ClientTimeout(ANSWER_S)

    async def ask_on(caller: Steady, url: str, body: object) -> None:
        async with aiohttp.ClientSession(timeout=limit, headers=headers) as http:
            while not done.is_set():
                began = time.monotonic()
                try:
                    method = "GET" if body is None else "POST"
                    async with http.request(method, url, json=body) as answer:
                        text = await answer.text()
                        if answer.status != 200:
                            raise aiohttp.ClientError(f"{answer.status} {text}")
                    caller.latencies_s.append(time.monotonic() - began)
                except (aiohttp.ClientError, TimeoutError) as error:
                    caller.failures.append(repr(error))
                await asyncio.sleep(PACE_S)

    async with asyncio.TaskGroup() as group:
        for what, (url, body) in calls.items():
            group.create_task(ask_on(callers[what], url, body))
        try:
            yield callers
        finally:
            done.set()


async def _large_model(rough: RoughClient) -> str:
    """The path at which the API answers with many bytes."""
    one = await rough.register("model", "large", "v1", MODEL_MANIFEST)
    tar = tar_of({"model.yaml": "name: large\nversion: v1\n", "weights": bytes(MODEL_BYTES)})
    await rough.call("PUT", f"{one}/upload", data=tar)
    return f"{one}/download"


def _memory(platform: Platform) -> dict[str, int]:
    return {role: memory_bytes(platform.pid(role)) for role in MEASURED}


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
