"""`kill -9` of a replica by chance every 2 s under load: how does every request end?"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.callers import calling
from loadtests.systems.proxies import HAPROXY, OURS, Proxy

SLOTS = 2
REPLICAS = 3
WORK_S = 0.02
CALLERS = 24
EVERY_S = 2.0
DOWN_S = 0.5
SECONDS = 60.0


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    seconds, kills, rng = (6.0 if quick else SECONDS), 0, random.Random(1)
    port = urlsplit(proxy.url).port
    assert port is not None
    async with calling(port, WORK_S, CALLERS) as ledger:
        began = asyncio.get_running_loop().time()
        while (now := asyncio.get_running_loop().time()) < began + seconds:
            await asyncio.sleep(EVERY_S - (now - began) % EVERY_S)
            victim = rng.choice(proxy.replicas)
            await victim.kill()
            kills += 1
            await asyncio.sleep(DOWN_S)
            await victim.start()
    begun = Counter(
        line for replica in proxy.replicas for line in replica.record.read_text().split()
    )
    gets, posts = ledger.count("GET"), ledger.count("POST")
    return {
        "kills": float(kills),
        "idempotent": gets["answered"] / max(1, gets.total()) * 100,
        "others": posts["answered"] / max(1, posts.total()) * 100,
        "twice": float(sum(n > 1 for i, n in begun.items() if ledger.methods[i] == "POST")),
        "silent": float(ledger.without_end),
        "unfounded": float(sum(ledger.outcomes[i] == "answered" for i in ledger.methods
                               if i not in begun)),
    }  # fmt: skip


TRIAL = Trial(
    "kills",
    Plan(SLOTS, replicas=REPLICAS),
    (OURS, HAPROXY),
    sample,
    {
        "kills": Figure("kill -9 of replicas: kills", 0, "> 0", lambda ours, _: ours > 0, min),
        "idempotent": Figure(
            "idempotent requests answered, %", 3, "≥ 99.9", lambda ours, _: ours >= 99.9
        ),
        "others": Figure("other requests answered, %", 3),
        "twice": Figure("other requests run twice", 0, "0", lambda ours, _: ours == 0, max),
        "silent": Figure("requests without an end", 0, "0", lambda ours, _: ours == 0, max),
        "unfounded": Figure("answered, but never run", 0, "0", lambda ours, _: ours == 0, max),
    },
    together="kills",
    rounds=1,
)
