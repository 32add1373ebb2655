"""10,000 connections that are kept and not used: their memory, and what others notice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.child_process import module, running
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import HAPROXY, OURS, Proxy

CONNECTIONS = 10_000
OTHERS = 4
OPEN_S = 60.0
PATH = "/work/0"


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    assert proxy.process is not None, "a proxy is measured that is a process of its own"
    count = 1000 if quick else CONNECTIONS
    seconds = 0.5 if quick else 2.0
    calm_ms = await _p50_ms(proxy, seconds, folder)
    before_bytes = proxy.process.memory_bytes()
    command = module("loadtests.programs.idle_clients", proxy.url + PATH, "--count", count)
    async with running(*command, log=folder / "idle.log", piped=True, grace_s=0.5) as idle:
        opened = (await idle.next_json(OPEN_S))["open"]
        after_bytes = proxy.process.memory_bytes()
        crowded_ms = await _p50_ms(proxy, seconds, folder)
        idle.write_line("")
        still = (await idle.next_json())["open"]
    return {
        "memory": (after_bytes - before_bytes) / 1e6,
        "slower": crowded_ms / calm_ms,
        "calm": calm_ms,
        "beyond": crowded_ms - (1.2 * calm_ms + 0.05),
        "lost": float(count - min(opened, still)),
    }


async def _p50_ms(proxy: Proxy, seconds: float, folder: Path) -> float:
    async with clients(proxy, PATH, OTHERS, seconds, folder, warmup_s=0.3) as load:
        return load.p50_ms


TRIAL = Trial(
    "idle",
    Plan(16),
    (OURS, HAPROXY),
    sample,
    {
        "memory": Figure(
            f"{CONNECTIONS:,} idle connections: MB more", 0, "≤ 100", lambda ours, _: ours <= 100
        ),
        "calm": Figure("p50 of others before, ms", 2),
        "slower": Figure("p50 of others with them, x before", 2),
        "beyond": Figure(
            "p50 of others, ms above 1.2 x + 0.05 ms", 2, "≤ 0", lambda ours, _: ours <= 0
        ),
        "lost": Figure("idle connections lost", 0, "0", lambda ours, _: ours == 0, max),
    },
    pinned=True,
)
