"""What a proxy under little load adds to the latency of a replica that takes 10 ms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import AIOHTTP, DIRECT, HAPROXY, HEAVY, OURS, Proxy

CLIENTS = 4
WORK_S = 0.01


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    warmup_s, seconds = (0.3, 1.0) if quick else (0.5, 3.0)
    async with clients(
        proxy, f"/work/{WORK_S}", CLIENTS, seconds, folder, warmup_s=warmup_s
    ) as load:
        return {"p50": load.p50_ms, "p99": load.p99_ms}


TRIAL = Trial(
    "latency",
    Plan(16, weights={"acme": 1, "other": 2}),
    (DIRECT, OURS, HAPROXY, AIOHTTP),
    sample,
    {
        "p50": Figure(
            "added to 10 ms: p50 ms", 2, "≤ 0.3", lambda ours, _: ours <= 0.3, above_direct=True
        ),
        "p99": Figure(
            "added to 10 ms: p99 ms", 2, "≤ 1", lambda ours, _: ours <= 1, above_direct=True
        ),
    },
    heavy=HEAVY,
    pinned=True,
)
