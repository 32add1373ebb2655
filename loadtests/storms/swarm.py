"""A cluster of agents in virtual time: its time beside one transfer, and what leaves the origin.

It uses the real planner. Each node, and the origin, has a link of one speed in both directions.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.cache.swarm_simulation import Cluster


@dataclass(frozen=True)
class _Case:
    name: str
    nodes: int
    limit: float
    """As a multiple of one transfer."""
    bad: tuple[str, ...] = ()
    late_s: float = 0.0
    """How long after the one before each node starts."""
    dies_s: float = 0.0
    """How long after the start every third node dies; 0 = none does."""


_CASES = (
    _Case("1 node", 1, 1.02),
    _Case("8 nodes", 8, 1.2),
    _Case("8 nodes, half lie", 8, 1.5, ("lies",) * 4),
    _Case("8 nodes, half stall", 8, 1.5, ("stalls",) * 4),
    _Case("8 nodes, half lie or stall", 8, 1.5, ("lies", "boasts") * 2),
    _Case("8 nodes, each 0.5 s later", 8, 1.5, late_s=0.5),
    _Case("9 nodes, three die", 9, 1.6, dies_s=3.0),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bytes", type=int, default=10**9, help="size of the model")
    parser.add_argument("--link", type=float, default=125e6, help="bytes per second of each link")
    parser.add_argument("--nodes", type=int, default=64, help="nodes of the large case")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    for case in (*_CASES, _Case(f"{flags.nodes} nodes", flags.nodes, 1.3)):
        _run(case, flags.bytes, flags.link, verdict)
    return verdict


def _run(case: _Case, size_bytes: int, link: float, verdict: Verdict) -> None:
    cluster = Cluster(size_bytes, link)
    for number in range(case.nodes):
        kind = case.bad[number - 1] if 0 < number <= len(case.bad) else "honest"
        dies_at = case.dies_s if case.dies_s and number % 3 == 1 else None
        cluster.add(number * case.late_s, kind, dies_at)
    cluster.run()
    slowest_s = max(one.took_s for one in cluster.nodes if one.done_at is not None)
    times = slowest_s / cluster.one_transfer_s
    origin = cluster.origin_bytes / size_bytes
    refused = sum(one.refused for one in cluster.nodes)
    verdict.figures[case.name] = (
        f"{times:.3f} x one transfer (limit {case.limit:g}), origin {origin:.3f} x the size, "
        f"{refused} x 429"
    )
    if times > case.limit:
        verdict.broken.append(f"{case.name}: {times:.3f} x one transfer, limit {case.limit:g}")
