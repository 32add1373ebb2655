"""What a proxy adds to the latency of a replica: under little load, and at 1,000 requests/s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import AIOHTTP, DIRECT, HAPROXY, HEAVY, OURS, Proxy

FEW, FEW_S = 4, 0.01
"""Clients, and seconds of a handler."""
MANY, MANY_S = 100, 0.1
WEIGHTS = {"acme": 1, "other": 2}
PROXIES = (DIRECT, OURS, HAPROXY, AIOHTTP)


def _sampled(
    count: int, work_s: float, warmup_s: float, seconds: float
) -> Callable[[Proxy, Path, bool], Awaitable[Mapping[str, float]]]:
    async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
        times_s = (1.0, 0.5) if quick else (seconds, warmup_s)
        async with clients(
            proxy, f"/work/{work_s}", count, times_s[0], folder, warmup_s=times_s[1]
        ) as load:
            return {
                "answers": load.answers_per_s,
                "p50": load.p50_ms,
                "p99": load.p99_ms,
                "failed": load.failed + load.refused,
            }

    return sample


LATENCY = Trial(
    "latency",
    Plan(16, weights=WEIGHTS),
    PROXIES,
    _sampled(FEW, FEW_S, 0.5, 3.0),
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
OVERHEAD = Trial(
    "overhead",
    Plan(2 * MANY, weights=WEIGHTS),
    PROXIES,
    _sampled(MANY, MANY_S, 1.0, 8.0),
    {
        "answers": Figure("100 clients on 100 ms: answers/s", 0),
        "p50": Figure("the same: added p50, ms", 2, above_direct=True),
        "p99": Figure(
            "the same: added p99, ms", 2, "≤ 5", lambda ours, _: ours <= 5, above_direct=True
        ),
        "failed": Figure("the same: failed", 0, "0", lambda ours, _: ours == 0, of_rounds=max),
    },
    pinned=True,
)
