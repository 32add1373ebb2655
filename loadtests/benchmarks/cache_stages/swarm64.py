"""64 agents that want one model at once, in virtual time, with the real planner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from loadtests.benchmarks.cache_stages.table import Row, row
from loadtests.harness.bounds import at_most
from tests.support.cache.swarm_simulation import Cluster

NODES, QUICK_NODES = 64, 16
SIZE_BYTES, QUICK_BYTES = 10**9, 2 * 10**8


async def measure(folder: Path, quick: bool) -> Sequence[Row]:
    nodes, size_bytes = (QUICK_NODES, QUICK_BYTES) if quick else (NODES, SIZE_BYTES)
    cluster = await asyncio.to_thread(_run, nodes, size_bytes)
    last_s = max(one.took_s for one in cluster.nodes)
    what = f"{nodes} agents at once, simulated"
    return [
        row(f"{what}: x one transfer", {"ours": last_s / cluster.one_transfer_s}, at_most(1.3)),
        row(f"{what}: origin bytes, x size", {"ours": cluster.origin_bytes / size_bytes}),
    ]


def _run(nodes: int, size_bytes: int) -> Cluster:
    cluster = Cluster(size_bytes)
    for _ in range(nodes):
        cluster.add()
    cluster.run()
    return cluster
