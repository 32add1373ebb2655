"""Clients that leave in the middle of a handler, which goes on: when is their slot used again?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.overload import SLOTS, at_most_its_slots
from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import clients
from loadtests.systems.proxies import AIOHTTP, HAPROXY, HAPROXY_ABORT, OURS, Proxy

CLIENTS = 40
"""So many that some always wait."""
WORK_S = 0.3
PATIENCE_S = 0.1


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    path = f"/work/{WORK_S}"
    seconds = 2.0 if quick else 6.0
    async with clients(proxy, path, CLIENTS, seconds, folder, patience_s=PATIENCE_S) as load:
        stats = await proxy.stats()
        return {
            "most": float(stats.most),
            "back": stats.back_p50_s * 1000,
            "back_most": stats.back_most_s * 1000,
            "left": float(load.left),
        }


TRIAL = Trial(
    "abandoned",
    Plan(SLOTS),
    (OURS, HAPROXY, HAPROXY_ABORT, AIOHTTP),
    sample,
    {
        "most": at_most_its_slots("they leave in mid-handler"),
        "back": Figure(
            "from a handler's end to the slot's next: p50 ms",
            2,
            "> 0",
            lambda ours, _: ours > 0,
        ),
        "back_most": Figure("and at most, ms", 1, "≤ 100", lambda ours, _: ours <= 100),
        "left": Figure("clients that left", 0, "> 0", lambda ours, _: ours > 0),
    },
    together="abandoned",
)
