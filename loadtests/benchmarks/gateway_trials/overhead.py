"""What a proxy adds to 1,000 requests/s on a replica that takes 100 ms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import AIOHTTP, DIRECT, HAPROXY, OURS, Proxy

CLIENTS = 100
WORK_S = 0.1


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    warmup_s, seconds = (0.5, 1.0) if quick else (1.0, 8.0)
    async with clients(
        proxy, f"/work/{WORK_S}", CLIENTS, seconds, folder, warmup_s=warmup_s
    ) as load:
        return {
            "answers": load.answers_per_s,
            "p50": load.p50_ms,
            "p99": load.p99_ms,
            "failed": load.failed + load.refused,
        }


TRIAL = Trial(
    "overhead",
    Plan(2 * CLIENTS, weights={"acme": 1, "other": 2}),
    (DIRECT, OURS, HAPROXY, AIOHTTP),
    sample,
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
