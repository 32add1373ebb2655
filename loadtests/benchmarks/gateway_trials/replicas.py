"""From no replica to three while 100 requests are held; then one is taken out under load."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.accelerator import clock
from loadtests.harness.route_plan import Plan
from loadtests.systems.callers import calling
from loadtests.systems.proxies import OURS, Proxy

SLOTS = 2
REPLICAS = 3
WORK_S = 0.05
CALLERS = 100
HELD_S = 1.0
LATE_S = 1.5
"""How long after it was named the third replica begins to listen."""


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    assert proxy.routes is not None, (
        "only a proxy whose routes can be edited while it runs is measured"
    )
    addresses = [replica.address for replica in proxy.replicas]
    late = proxy.replicas[-1]
    await late.kill()
    port = urlsplit(proxy.url).port
    assert port is not None
    async with calling(port, WORK_S, CALLERS) as ledger:
        await asyncio.sleep(HELD_S)
        held = len(ledger.methods) - len(ledger.outcomes)
        named_at = clock()
        proxy.routes.write(addresses)
        await asyncio.sleep(LATE_S)
        await late.start()
        late_at = clock()
        await asyncio.sleep(1.5)
        proxy.routes.write(addresses[1:])
        await asyncio.sleep(1.0)
        stats = [await replica.stats() for replica in proxy.replicas]
        await asyncio.sleep(0.5)
        still_used = (await proxy.replicas[0].stats()).begun - stats[0].begun
    busy_s = max(one.first_at for one in stats[:-1]) - named_at
    return {
        "held": float(held),
        "named": busy_s,
        "ready": stats[-1].first_at - late_at,
        "errors": float(len(ledger.methods) - ledger.outcomes_of("answered")),
        "most": float(max(one.most for one in stats)),
        "after": float(still_used),
    }


def _soon(what: str) -> Figure:
    bound_s = WORK_S + 0.5
    return Figure(what, 3, f"0 - {bound_s:.2f}", lambda ours, _: 0 < ours <= bound_s, max)


TRIAL = Trial(
    "replicas",
    Plan(SLOTS, replicas=REPLICAS, named=0),
    (OURS,),
    sample,
    {
        "held": Figure(
            "0→3 replicas: requests held", 0, f"{CALLERS}", lambda ours, _: ours == CALLERS, min
        ),
        "named": _soon("named until both that run are busy, s"),
        "ready": _soon("the third: ready until busy, s"),
        "errors": Figure("errors, with one taken out too", 0, "0", lambda ours, _: ours == 0, max),
        "most": Figure("most at once in a replica", 0, f"{SLOTS}", lambda o, _: o <= SLOTS, max),
        "after": Figure("requests to the one taken out", 0, "0", lambda ours, _: ours == 0, max),
    },
    together="replicas",
)
