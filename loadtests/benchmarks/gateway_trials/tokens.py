"""200 streams of 50 events a second each (SSE): how much later does each event come?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.child_process import module, running
from loadtests.harness.route_plan import Plan
from loadtests.systems.proxies import DIRECT, HAPROXY, OURS, Proxy

STREAMS = 200
EVERY_S = 0.02


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    seconds = 1.0 if quick else 3.0
    command = module(
        "loadtests.programs.token_clients",
        *(proxy.url, "--streams", STREAMS, "--every", EVERY_S, "--seconds", seconds),
    )
    async with running(*command, log=folder / "tokens.log", piped=True, grace_s=0.5) as readers:
        seen = await readers.next_json()
    return {
        "p50": seen["p50_ms"],
        "p99": seen["p99_ms"],
        "missing": max(0.0, 1 - seen["events"] / (STREAMS * seconds / EVERY_S)) * 100,
        "broken": float(seen["broken"]),
    }


TRIAL = Trial(
    "tokens",
    Plan(STREAMS, streams=True),
    (DIRECT, OURS, HAPROXY),
    sample,
    {
        "p50": Figure("200 streams, 50 tokens/s: added p50 ms", 2, above_direct=True),
        "p99": Figure(
            "200 streams, 50 tokens/s: added p99 ms",
            2,
            "≤ 2",
            lambda ours, _: ours <= 2,
            above_direct=True,
        ),
        "missing": Figure("tokens behind the pace, %", 1, "≤ 1", lambda ours, _: ours <= 1),
        "broken": Figure("streams that broke", 0, "0", lambda ours, _: ours == 0, max),
    },
    pinned=True,
    # In some rounds pauses of the machine delay a hundredth of the events, in others none.
    rounds=7,
)
