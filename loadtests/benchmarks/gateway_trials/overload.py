"""200 clients on 2 slots of 50 ms: 40 answers/s at best. And the same with clients that leave."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import AIOHTTP, DIRECT, HAPROXY, HAPROXY_ABORT, HEAVY, OURS, Proxy

PROXIES = (DIRECT, OURS, HAPROXY, HAPROXY_ABORT, AIOHTTP)
CLIENTS = 200
SLOTS = 2
WORK_S = 0.05
BEST_PER_S = SLOTS / WORK_S
PATIENCE_S = 2.0


async def sample(
    proxy: Proxy, folder: Path, quick: bool, *, patience_s: float = 0.0
) -> Mapping[str, float]:
    """Within ten seconds each of the clients has two answers, if nothing delays them."""
    warmup_s, seconds = (0.5, 2.0) if quick else (5.0, 10.0)
    path = f"/work/{WORK_S}"
    async with clients(
        proxy, path, CLIENTS, seconds, folder, warmup_s=warmup_s, patience_s=patience_s
    ) as load:
        most = (await proxy.stats()).most
        return {"answers": load.answers_per_s, "most": float(most), "p50": load.p50_ms / 1000}


def at_most_its_slots(what: str) -> Figure:
    return Figure(f"{what}: most at once", 0, f"{SLOTS}", lambda ours, _: ours <= SLOTS, max)


OVERLOAD = Trial(
    "overload",
    Plan(SLOTS),
    PROXIES,
    sample,
    {
        "answers": Figure(
            "200 clients on 2 slots of 50 ms: answers/s",
            1,
            f"≥ {0.97 * BEST_PER_S:.1f}",
            lambda ours, _: ours >= 0.97 * BEST_PER_S,
        ),
        "most": at_most_its_slots("200 clients on 2 slots"),
        "p50": Figure("200 clients on 2 slots: p50 s"),
    },
    heavy=HEAVY,
    heavy_rounds=1,
    together="crowd",
)
LEAVING = Trial(
    "leaving",
    Plan(SLOTS, timeout_s=PATIENCE_S),
    PROXIES,
    functools.partial(sample, patience_s=PATIENCE_S),
    {
        "answers": Figure(
            "they leave after 2 s: good answers/s", 1, "≥ 37", lambda ours, _: ours >= 37
        ),
        "most": at_most_its_slots("they leave after 2 s"),
    },
    heavy=HEAVY,
    heavy_rounds=1,
    together="crowd",
)
