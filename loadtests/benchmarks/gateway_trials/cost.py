"""What a request costs: 1 KiB there, 1 KiB back, 64 connections over 16 slots; the same where 100
deployments share an address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loadtests.benchmarks.gateway_trials.trial import Figure, Trial
from loadtests.harness.route_plan import Plan
from loadtests.systems.load import saturate
from loadtests.systems.proxies import AIOHTTP, DIRECT, HAPROXY, HEAVY, OURS, Proxy

CONNECTIONS = 64
"""Four times the slots, so that the queue is in use."""
SLOTS = 16


async def sample(proxy: Proxy, folder: Path, quick: bool) -> Mapping[str, float]:
    if not quick:
        await saturate(proxy, "/work/0", CONNECTIONS, 1, folder)
    before_s = proxy.cpu_s()
    load = await saturate(proxy, "/work/0", CONNECTIONS, 1 if quick else 3, folder)
    figures = {"requests": load.answers_per_s, "failed": float(load.failed + load.refused)}
    if proxy.process is not None and load.answered:
        figures["cpu"] = (proxy.cpu_s() - before_s) / load.answered * 10_000
    return figures


def _cpu(what: str) -> Figure:
    return Figure(
        what,
        3,
        "≤ 1.3 x haproxy",
        lambda ours, haproxy: haproxy is None or ours <= 1.3 * haproxy,
    )


TRIAL = Trial(
    "cost",
    Plan(SLOTS, weights={"acme": 1, "other": 2}),
    (DIRECT, OURS, HAPROXY, AIOHTTP),
    sample,
    {
        "cpu": _cpu("CPU s per 10k requests"),
        "requests": Figure("requests/s on one core", 0),
        "failed": Figure("of them failed", 0, "0", lambda ours, _: ours == 0, max),
    },
    heavy=HEAVY,
    pinned=True,
)
HOSTS = Trial(
    "hosts",
    Plan(SLOTS, neighbours=99),
    (OURS, HAPROXY),
    sample,
    {"cpu": _cpu("CPU s per 10k requests, 100 hosts at one address")},
    pinned=True,
)
