"""Two organizations of closed-loop clients on 2 slots of 50 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import Load, clients
from loadtests.systems.proxies import HAPROXY, OURS, Proxy

SLOTS = 2
WORK_S = 0.05
BIG, SMALL = 190, 10
IDEAL_WAIT_S = SMALL / (SLOTS / WORK_S / 2) - WORK_S
"""10 clients share half of the slots: each is answered every 0.5 s, of which it works 0.05 s."""


async def sample_equal(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    _, small = await _both(proxy, {"big": BIG, "small": SMALL}, folder, quick)
    return {"wait": small.mean_ms / 1000 - WORK_S}


async def sample_weighted(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    heavy, light = await _both(proxy, {"heavy": 100, "light": 100}, folder, quick)
    return {"ratio": heavy.answered / max(1, light.answered)}


async def _both(
    proxy: Proxy, counts: Mapping[str, int], folder: Path, quick: bool
) -> tuple[Load, Load]:
    """What the clients of two organizations saw at the same time."""
    warmup_s, seconds = (1.0, 3.0) if quick else (6.0, 10.0)
    path = f"/work/{WORK_S}"
    async with AsyncExitStack() as stack:
        first, second = await asyncio.gather(
            *(
                stack.enter_async_context(
                    clients(
                        proxy, path, count, seconds, folder, warmup_s=warmup_s, organization=name
                    )
                )
                for name, count in counts.items()
            )
        )
        return first, second


EQUAL = Trial(
    "fairness",
    Plan(SLOTS),
    (OURS, HAPROXY),
    sample_equal,
    {
        "wait": Figure(
            "190 and 10 clients: the 10 wait, s",
            2,
            f"≤ {1.2 * IDEAL_WAIT_S:.2f}",
            lambda ours, _: ours <= 1.2 * IDEAL_WAIT_S,
        )
    },
    together="shares",
)
WEIGHTED = Trial(
    "weights",
    Plan(SLOTS, weights={"heavy": 3, "light": 1}),
    (OURS, HAPROXY),
    sample_weighted,
    {
        "ratio": Figure(
            "weights 3:1: ratio of answers", 2, "2.7 - 3.3", lambda ours, _: 2.7 <= ours <= 3.3
        )
    },
    together="shares",
)
